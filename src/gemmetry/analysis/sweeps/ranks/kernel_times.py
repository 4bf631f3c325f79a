"""The time of each kernel of a trace per step, by which ranks are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmetry.analysis.sweeps.model import GemmKind, KernelTimes, StepFacts
from gemmetry.formats.events import Bools, Int64
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.intervals import Intervals, covered
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.host import find_nesting

MOST_KERNELS = 128
"""Number of kernels that are kept, those with the most time: the smallest of them then take less
than a hundredth of a step."""

_NAME_CHARACTERS = 60


def gpu_kernel_times(
    trace: Trace, is_counted: Bools, gemm_rows: Int64, gemm_kind: Int64, kinds: Sequence[GemmKind],
    step_of: Int64, steps: Sequence[StepFacts],
) -> KernelTimes:  # fmt: skip
    """Those of the GPU's rows that `is_counted` selects: GEMMs by kernel and shape, others by name.

    Args:
        gemm_rows: rows of the GEMMs, with the index of each one's kind in `gemm_kind`.
        step_of: number of each row's step.
    """
    gpu = trace.rows.gpu
    names = [name[:_NAME_CHARACTERS] for name in trace.rows.names]
    for index, known in trace.kernel_names.items():
        names[index] = known.short or names[index]
    texts = names + [f"{kind.short} {kind.shape}".rstrip() for kind in kinds]
    label = gpu.name.astype(np.int64)
    label[gemm_rows] = len(names) + gemm_kind
    chosen = np.flatnonzero(is_counted)
    return _summed(texts, label[chosen], gpu.duration_ns[chosen], step_of[chosen], steps)


def host_kernel_times(
    trace: Trace, is_compute: Bools, busy: Intervals, step_of: Int64,
    step_of_annotation: Int64, is_counted: Bools, steps: Sequence[StepFacts],
) -> KernelTimes:  # fmt: skip
    """Those of a trace without work on a GPU: self times of the operators that compute, and of
    annotations the time in which none runs.

    Args:
        is_compute: (operators,) whether it computes.
        busy: when any of them runs.
        step_of: number of each operator's step.
        is_counted: (annotations,) those on the host that are neither steps nor collectives.
    """
    rows = trace.rows
    own = find_nesting(rows.operators, trace.launches.parent).self_ns
    marks = rows.annotations
    alone = marks.duration_ns - covered(marks.start_ns, marks.duration_ns, busy)
    return _summed(
        rows.names,
        np.concatenate([rows.operators.name[is_compute], marks.name[is_counted]]).astype(np.int64),
        np.concatenate([own[is_compute], alone[is_counted]]),
        np.concatenate([step_of[is_compute], step_of_annotation[is_counted]]),
        steps,
    )


def _summed(
    texts: Sequence[str], label: Int64, duration: Int64, step: Int64, steps: Sequence[StepFacts]
) -> KernelTimes:
    """The largest sums of durations by text, in each step."""
    index = {one.number: place for place, one in enumerate(steps)}
    place = np.array([index.get(number, NONE) for number in step.tolist()], np.int64)
    inside = place != NONE
    used = np.unique(label[inside])
    names = {text: number for number, text in enumerate(dict.fromkeys(texts[i] for i in used))}
    number_of = np.zeros(len(texts), np.int64)
    number_of[used] = [names[texts[i]] for i in used]
    cell = place[inside] * len(names) + number_of[label[inside]]
    sums = np.bincount(cell, duration[inside], minlength=len(steps) * len(names))
    table = sums.astype(np.int64).reshape(len(steps), len(names))
    kept = np.argsort(-table.sum(axis=0), kind="stable")[:MOST_KERNELS]
    listed = list(names)
    return KernelTimes(tuple(listed[i] for i in kept), table[:, kept].tobytes())
