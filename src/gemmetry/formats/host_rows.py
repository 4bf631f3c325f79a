"""Finds the calls and operators of a trace that led to work on GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from gemmetry.formats.events import MISSING, Bools, CallRows, GpuRows, Int64, OperatorRows
from gemmetry.formats.spool import Spool

KEPT_BYTES = 128 << 20
"""Number of calls and operators up to which all are kept: about 2.5 million rows, as in a 4 GB
file. Beyond it, only those that led to work on a GPU are kept."""


_LAUNCH = re.compile(r"Launch(?!Host|Attr|Config)")
"""Names of CUDA, HIP and their drivers: ``cudaLaunchKernel``, ``hipExtModuleLaunchKernel``,
``cudaGraphLaunch`` ..."""


def host_rows(
    gpu: GpuRows, calls: Spool[CallRows], operators: Spool[OperatorRows], names: Sequence[str] = ()
) -> tuple[CallRows, OperatorRows, int]:
    """The calls and operators to keep: all unless there are too many, else those that led to work
    on a GPU.

    Args:
        gpu: all work on GPUs; where there is none, everything is kept.
        calls: all calls.
        operators: all operators.
        names: of calls: launches are kept although their work may not be in the file.

    Returns:
        Calls, operators, and how many rows of both kinds were left out.
    """
    if calls.bytes + operators.bytes <= KEPT_BYTES or len(gpu.start_ns) == 0:
        return calls.all(), operators.all(), 0
    kept_calls, some = _launching(gpu, calls, np.array([is_launch(name) for name in names], bool))
    wanted_ids = np.unique(np.concatenate([gpu.external_id, kept_calls.external_id]))
    kept_operators, more = _enclosing(kept_calls, operators, wanted_ids[wanted_ids > 0])
    return kept_calls, kept_operators, some + more


def is_launch(name: str) -> bool:
    """Whether a call of this name launches kernels or a graph."""
    return _LAUNCH.search(name) is not None


def _launching(gpu: GpuRows, calls: Spool[CallRows], launches: Bools) -> tuple[CallRows, int]:
    launched = np.unique(gpu.correlation)
    launched = launched[launched != MISSING]
    wanted = []
    for piece in calls.pieces():
        wanted.append(among(piece.correlation, launched))
        if len(launches):
            wanted[-1] |= launches[piece.name]
    kept = calls.all(wanted)
    return kept, calls.rows - len(kept.start_ns)


def _enclosing(
    calls: CallRows, operators: Spool[OperatorRows], wanted_ids: Int64
) -> tuple[OperatorRows, int]:
    """The operators linked to a call by time or by number, collectives, and the forward operators
    of backward operators that are kept."""
    starts = {
        int(thread): np.sort(calls.start_ns[calls.thread == thread])
        for thread in np.unique(calls.thread)
    }
    masks: list[Bools] = []
    sequences = np.zeros(0, np.int64)
    for piece in operators.pieces():
        wanted = (piece.collective >= 0) | among(piece.external_id, wanted_ids)
        for thread, start in starts.items():
            here = np.flatnonzero((piece.thread == thread) & ~wanted)
            begin = piece.start_ns[here]
            end = begin + piece.duration_ns[here]
            before, after = np.searchsorted(start, begin), np.searchsorted(start, end, "right")
            wanted[here] = before < after
        masks.append(wanted)
        sequences = np.union1d(sequences, piece.sequence[wanted])
    sequences = sequences[sequences >= 0]
    for piece, wanted in zip(operators.pieces(), masks, strict=True):
        wanted |= among(piece.sequence, sequences)
    kept = operators.all(masks)
    return kept, operators.rows - len(kept.start_ns)


def among(values: Int64, sorted_set: Int64) -> Bools:
    """``np.isin`` with a sorted right-hand side, without importing numpy's masked arrays."""
    if not len(sorted_set):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    found: Bools = sorted_set[place] == values
    return found
