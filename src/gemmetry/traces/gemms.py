"""Summarises the GEMMs of traces by kernel and shape: counts, times, speeds, and overlap with
communication.

The rows include all time of kernels with GEMM names, whether their shape is known or not.

The distinct GEMMs of a workload, and a spec file of them: from a trace to a tuning job.

A kernel's shape is that of the innermost operator around its launch that is a GEMM. A kernel of a
graph, or one whose launch is not in the file, gets the shape of similar instances, if these all
have the same; such a shape is *inferred*.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import (
    DTYPES,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    check_shape,
    default_result,
    operation_name,
)
from gemmetry.domain.rows import Derived, Row, derived, fact
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import noun_for, plural
from gemmetry.formats.events import Bools, Int64, TraceRows
from gemmetry.hardware.devices import find_device, rate_class
from gemmetry.traces.joins import NONE, covered, enclosing_operator
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind, KernelName, classify
from gemmetry.traces.operators.gemms import (
    GemmShape,
    distinct_rows,
    gemm_shape,
    is_gemm_operator,
    unpacked_for,
)

_BACKWARD = re.compile(r"backward", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GemmLinks:
    """The GEMM kernels of one trace; arrays have one entry per GEMM kernel."""

    row: Int64
    """Row in ``TraceRows.gpu``."""
    shapes: tuple[GemmShape, ...]
    shape: Int64
    """Index into `shapes`; -1: not known."""
    operator: Int64
    """Row of ``TraceRows.operators``: the operator that gives the shape, else the innermost one;
    -1: none."""
    inferred: Bools
    """The shape comes from other instances, or from a backward operator's forward one."""
    is_alone: Bools
    """The only multiplication of its operator, so that all of its FLOPs are this kernel's; false
    for helper passes."""


def link_gemms(trace: Trace) -> GemmLinks:
    """Shapes of the GEMM kernels of `trace`."""
    rows, launches = trace.rows, trace.launches
    row = np.flatnonzero(trace.is_gemm)
    shapes, shape_of = operator_shapes(rows)
    innermost = np.where(launches.from_graph[row], NONE, launches.operator[row])
    operator = enclosing_operator(innermost, launches.parent, shape_of)
    shape = np.append(shape_of, NONE)[operator]
    helper = [i for i, n in trace.kernel_names.items() if n.kind is KernelKind.GEMM_REDUCTION]
    main = ~np.isin(rows.gpu.name[row], np.array(helper, np.int64))

    inferred = np.zeros(len(row), bool)
    unknown = (shape == NONE) & (innermost != NONE) & main
    numbers = {known: number for number, known in enumerate(shapes)}
    gradients = _backward_shapes(trace, shapes, shape_of, innermost, unknown)
    for index, found in gradients.items():
        shape[index] = numbers.setdefault(found, len(numbers))
        inferred[index] = True

    # The only kernel of its operator, not counting helper passes.
    known = operator != NONE
    counts = np.bincount(operator[known & main], minlength=int(operator.max(initial=0)) + 1)
    is_alone = main & known & (counts[np.where(known, operator, 0)] == 1)
    guess = _of_other_instances(trace, row, shape, (shape == NONE) & (innermost == NONE))
    guess = _without_open_operators(trace, row, guess, shape_of, operator[main])
    inferred |= guess != NONE
    shape = np.where(guess != NONE, guess, shape)
    is_alone |= main & (guess != NONE)
    operator = np.where(operator == NONE, innermost, operator)
    return GemmLinks(row, tuple(numbers), shape, operator, inferred, is_alone)


def operator_shapes(rows: TraceRows) -> tuple[list[GemmShape], Int64]:
    """The distinct GEMMs of all operators, and (operators,) the index of each operator's GEMM; -1:
    none."""
    operators = rows.operators
    result = np.full(len(operators.name), NONE, np.int64)
    may_be = np.array([is_gemm_operator(name) for name in rows.names], bool)
    chosen = np.flatnonzero(may_be[operators.name]) if len(may_be) else result[:0]
    if not len(chosen):
        return [], result
    width = len(rows.arguments) + 1
    keys = operators.name[chosen].astype(np.int64) * width + operators.arguments[chosen]
    distinct, which = np.unique(keys, return_inverse=True)
    numbers: dict[GemmShape, int] = {}
    found = np.full(len(distinct), NONE, np.int64)
    for place, key in enumerate(distinct.tolist()):
        name, arguments = divmod(key, width)
        shape = gemm_shape(rows.names[name], rows.arguments[arguments])
        if shape is not None:
            found[place] = numbers.setdefault(shape, len(numbers))
    result[chosen] = found[which]
    return list(numbers), result


def _of_other_instances(trace: Trace, row: Int64, shape: Int64, lost: Bools) -> Int64:
    """The shape of similar kernels for each `lost` kernel; -1 where it is not certain.

    Kernels with the same name, grid and block are similar. Where two operators launched such
    kernels for different shapes (persistent kernels have one grid for all), or a convolution
    launched one, nothing is inferred.
    """
    gpu = trace.rows.gpu
    result = np.full(len(row), NONE, np.int64)
    if not lost.any() or lost.all():
        return result
    other = np.flatnonzero(trace.is_gemm_of_convolution)
    of_convolution = int(shape.max()) + 1
    every = np.concatenate([row, other])
    known = np.concatenate([shape, np.full(len(other), of_convolution, np.int64)])
    launch = np.column_stack([gpu.name[every], gpu.grid[every], gpu.block[every]]).astype(np.int64)
    # AMD's tools report no grid where the launch is not recorded: only the name is compared there.
    has_grid = (launch[: len(row), 1:4] > 0).all(axis=1)
    for chosen, keys in ((lost & has_grid, launch), (lost & ~has_grid, launch[:, :1])):
        if chosen.any():
            result[chosen] = _only_shape(distinct_rows(*keys.T)[1], known)[: len(row)][chosen]
    result[result == of_convolution] = NONE
    return result


def _without_open_operators(
    trace: Trace, row: Int64, guess: Int64, shape_of: Int64, has_kernel: Int64
) -> Int64:
    """`guess` without the shapes that an operator in the file contradicts.

    An operator that is a GEMM of another shape and whose own kernel is not known may have launched
    a kernel whose launch is not in the file. Kernels of a stream run in the order of their
    launches, so it has to overlap the time between the launches of the kernels before and after.

    Args:
        has_kernel: operators that launched a multiplication.
    """
    launches, rows = trace.launches, trace.rows
    lost = np.flatnonzero((guess != NONE) & (launches.call[row] == NONE))
    is_open = shape_of != NONE
    is_open[has_kernel[has_kernel != NONE]] = False
    outer = enclosing_operator(launches.parent[shape_of != NONE], launches.parent, shape_of)
    is_open[outer[outer != NONE]] = False
    if not len(lost) or not is_open.any():
        return guess
    after, before = _launched_between(rows, launches.call, row[lost])
    began, requested = rows.operators.start_ns[is_open], shape_of[is_open]
    ended = began + rows.operators.duration_ns[is_open]
    order = np.argsort(began, kind="stable")
    began, requested, ended = began[order], requested[order], ended[order]
    result = guess.copy()
    for shape in np.unique(guess[lost]).tolist():
        of_shape = np.flatnonzero(guess[lost] == shape)
        other = requested != shape
        latest_end = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ended[other]))
        overlaps = latest_end[np.searchsorted(began[other], before[of_shape])] > after[of_shape]
        result[lost[of_shape[overlaps]]] = NONE
    return result


def _launched_between(rows: TraceRows, call: Int64, wanted: Int64) -> tuple[Int64, Int64]:
    """Two moments in ns for each `wanted` row of ``rows.gpu``, between which it was launched: the
    launches, as far as they are known, of what ran before and after it on its stream; the later one
    is its own start at the latest."""
    gpu = rows.gpu
    order = np.lexsort((gpu.start_ns, gpu.stream, gpu.device))
    lane = distinct_rows(gpu.device, gpu.stream)[1][order]
    known = np.flatnonzero(call[order] != NONE)
    moment = rows.calls.start_ns[call[order[known]]]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    at = place[wanted]
    following = np.searchsorted(known, at)
    after = np.full(len(wanted), np.iinfo(np.int64).min)
    before = gpu.start_ns[wanted].copy()
    has = following > 0
    has[has] = lane[known[following[has] - 1]] == lane[at[has]]
    after[has] = moment[following[has] - 1]
    has = following < len(known)
    has[has] = lane[known[following[has]]] == lane[at[has]]
    before[has] = np.minimum(before[has], moment[following[has]])
    return after, before


def _only_shape(group: Int64, shape: Int64) -> Int64:
    """The common shape of all rows of the same group that have one; -1 where shapes differ."""
    known = shape != NONE
    count = int(group.max(initial=0)) + 1
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, NONE, np.int64)
    np.minimum.at(least, group[known], shape[known])
    np.maximum.at(most, group[known], shape[known])
    return np.where(least == most, most, NONE)[group]


def _backward_shapes(
    trace: Trace, shapes: Sequence[GemmShape], shape_of: Int64, innermost: Int64, unknown: Bools
) -> dict[int, GemmShape]:
    """Shapes of kernels in backward operators without a shape, from their forward operator, which
    has the same sequence number.

    A product has two gradients, A's and then B's (the order of PyTorch's ``derivatives.yaml``);
    where a backward operator launched another number of GEMMs, they cannot be assigned.

    Args:
        innermost: of each GEMM kernel, the operator that launched it.
        unknown: which of them are multiplications in such operators.
    """
    rows, operators = trace.rows, trace.rows.operators
    if not unknown.any():
        return {}
    forward: dict[int, set[int]] = defaultdict(set)
    for one in np.flatnonzero((shape_of != NONE) & (operators.sequence >= 0)).tolist():
        if not _BACKWARD.search(rows.names[operators.name[one]]):
            forward[int(operators.sequence[one])].add(int(shape_of[one]))
    members = grouped(
        np.flatnonzero(unknown).tolist() if forward else (),
        lambda index: _backward_sequence(rows, trace.launches.parent, int(innermost[index])),
    )
    found: dict[int, GemmShape] = {}
    for sequence, indices in members.items():
        candidates = forward.get(sequence, set())
        if len(candidates) == 1 and len(indices) == 2:
            # dA = dC·Bᵀ and dB = Aᵀ·dC (or its transpose); their layouts are not known.
            m, n, k, batch, dtype, _, _ = shapes[candidates.pop()]
            left, right = GemmShape(m, k, n, batch, dtype), GemmShape(k, n, m, batch, dtype)
            found |= {indices[0]: left, indices[1]: right}
    return found


def _backward_sequence(rows: TraceRows, parent: Int64, operator: int) -> int:
    """Sequence number of the innermost operator of a backward pass around `operator`; -1: none."""
    operators = rows.operators
    while operator != NONE:
        is_backward = _BACKWARD.search(rows.names[operators.name[operator]])
        if is_backward and operators.forward_thread[operator] > 0:
            return int(operators.sequence[operator])
        operator = int(parent[operator])
    return NONE


_DTYPE, _LAYOUT = "format of A and B", "layouts of A and B: t row-major, n column-major"


def shape_facts(shape: str) -> tuple[Derived[Any], ...]:
    """Sizes, format and layout of the field `shape`, a :class:`GemmShape` or None."""
    return tuple(
        derived(text, type=kind | None)(_of(shape, name))
        for name, kind, text in (
            ("m", int, "rows of the result"), ("n", int, "columns of the result"),
            ("k", int, "length of the sums"), ("batch", int, "number of products"),
            ("dtype", str, _DTYPE), ("layout", str, _LAYOUT),
        )
    )  # fmt: skip


def _of(field: str, name: str) -> Callable[[Any], Any]:
    return lambda row: getattr(getattr(row, field), name, None)


def part_of(part: int | None, whole: int) -> float | None:
    """`part` of `whole`; None where there is none."""
    return None if part is None or not whole else part / whole


def _text(sizes: Sequence[int] | None) -> str | None:
    return "x".join(map(str, sizes)) if sizes else None


class GemmRow(Row):
    """All instances of one kernel with one shape on one kind of device; None: not known.

    A layout comes from the operator's strides, else from the kernel's name, assuming a row-major
    result. A speed is None for helper passes, and where several kernels share the FLOPs of an
    operator. A row that is above every dense peak that the device may have here has a wrong time or
    shape, or is sparse.
    """

    facts: KernelName
    """Facts from the kernel's name."""
    shape: GemmShape | None
    names: tuple[str, ...]
    """Operators that launched it, the most frequent one first."""
    files: frozenset[Path] = frozenset()
    """Traces that contain it; empty where the rows do not come from traces."""
    overlapped_ns: int | None = None
    """Part of `sum_ns` during which a communication kernel ran."""

    device: str | None = fact("product name of the GPU", default=None)
    kernel: str = fact("name of the kernel, or of the operator on the host")
    short_name = derived("the name without template arguments", type=str)(attrgetter("facts.short"))
    kind = derived("what the kernel does", type=str)(attrgetter("facts.kind"))
    family = derived("the library or generator of the kernel", type=str | None)(
        attrgetter("facts.family")
    )
    operators = derived("operators that launched it, the most frequent one first", type=str | None)(
        lambda row: ", ".join(row.names)
    )
    m, n, k, batch, *_ = shape_facts("shape")
    dtype: str | None = fact(_DTYPE)
    layout: str | None = fact(_LAYOUT)
    tile = derived("tile sizes in the name", type=str | None)(lambda row: _text(row.facts.tile))
    stages = derived("pipeline stages in the name", type=int | None)(attrgetter("facts.stages"))
    cluster = derived("cluster sizes in the name", type=str | None)(
        lambda row: _text(row.facts.cluster)
    )
    split_k = derived("parts of K in the name", type=int | None)(attrgetter("facts.split_k"))
    count: int = fact("instances")
    linked: int = fact("instances whose operator records the shape")
    inferred: int = fact("instances with the shape of others", default=0)
    sum_ns: int = fact("total time", "µs")
    share: float | None = fact("share of the time of all rows", default=None)
    median_ns: float = fact("median time", "µs")
    p5_ns: float | None = fact("5th percentile", "µs", default=None)
    p95_ns: float | None = fact("95th percentile", "µs", default=None)
    mad_ns: float | None = fact("median absolute deviation from the median", "µs", default=None)
    min_ns: int = fact("shortest time", "µs")
    max_ns: int = fact("longest time", "µs")
    tflops: float | None = fact("speed of the median instance", "10¹² FLOP/s")
    peak_fraction: float | None = fact("speed as a share of the device's peak", default=None)
    above_peak: bool = fact(
        "whether it exceeds the device's peak, so that a time or a shape is wrong", default=False
    )
    overlapped: int | None = fact("instances during which a kernel communicated", default=None)
    overlapped_share = derived(
        "share of the time with communication at the same time", type=float | None
    )(lambda row: part_of(row.overlapped_ns, row.sum_ns))


def with_shares(rows: Sequence[GemmRow]) -> list[GemmRow]:
    """`rows`, each with its share of the time of all."""
    whole = sum(row.sum_ns for row in rows)
    return [replace(row, share=part_of(row.sum_ns, whole)) for row in rows]


@dataclass(slots=True)
class _GemmGroup:
    """Instances of one row, collected from the traces."""

    durations: list[Int64] = field(default_factory=list)
    overlaps: list[Int64] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)
    files: set[Path] = field(default_factory=set)
    linked: int = 0
    inferred: int = 0
    is_alone: bool = True


_Key = tuple[str, str, GemmShape | None]


def members_of(which: Int64, groups: int) -> list[Int64]:
    """The indices of each group, ascending, where `which` has the group of each."""
    ends = np.cumsum(np.bincount(which, minlength=groups))
    return np.split(np.argsort(which, kind="stable"), ends[:-1])


class Gemms:
    """GEMMs of traces, which are added one by one and not kept."""

    def __init__(self, traces: Iterable[Trace] = ()) -> None:
        self._groups: dict[_Key, _GemmGroup] = {}
        for trace in traces:
            self.add(trace)

    def add(self, trace: Trace) -> None:
        """Add the GEMMs of `trace`."""
        links, rows = link_gemms(trace), trace.rows
        gpu, row = rows.gpu, links.row
        if not len(row):
            return
        duration = gpu.duration_ns[row]
        overlap = covered(gpu.start_ns[row], duration, trace.communication)
        operator = np.append(rows.operators.name, NONE)[links.operator]
        distinct, which = distinct_rows(gpu.device[row], gpu.name[row], links.shape)
        for members, (device, name, place) in zip(
            members_of(which, len(distinct)), distinct.tolist(), strict=True
        ):
            shape = links.shapes[place] if place != NONE else None
            if shape is not None:
                shape = unpacked_for(shape, trace.kernel_names[name].dtype)
            key = (trace.device_name(device), rows.names[name], shape)
            group = self._groups.setdefault(key, _GemmGroup())
            group.files.add(trace.file)
            group.durations.append(duration[members])
            group.overlaps.append(overlap[members])
            inferred = int(links.inferred[members].sum())
            group.inferred += inferred
            group.linked += len(members) - inferred if shape is not None else 0
            group.is_alone &= bool(links.is_alone[members].all())
            names, counts = np.unique(operator[members], return_counts=True)
            for index, count in zip(names.tolist(), counts.tolist(), strict=True):
                if index != NONE:
                    group.operators[rows.names[index]] += count

    def rows(self) -> list[GemmRow]:
        """The GEMMs of all traces together, those with the most time first."""
        rows = [_row(key, group) for key, group in self._groups.items()]
        return sorted(rows, key=lambda row: (-row.sum_ns, row.kernel, str(row.shape)))


def _row(key: _Key, group: _GemmGroup) -> GemmRow:
    device, kernel, shape = key
    facts = classify(kernel)
    durations = np.sort(np.concatenate(group.durations))
    overlaps = np.concatenate(group.overlaps)
    median = quantile_of_sorted(durations, 0.5)
    dtype = gemm_dtype(shape, facts)
    tflops = peak = most = None
    if shape is not None and group.is_alone and median > 0:
        tflops = shape.flops / median / 1000
        peak = peak_flops_per_s(device, _rate_format(shape, facts, device))
        # f32 may be rounded to tf32, whose peak then bounds it.
        most = peak or peak_flops_per_s(device, "tf32" if dtype == "f32" else None)
    return GemmRow(
        device=device or None,
        kernel=kernel,
        facts=facts,
        shape=shape,
        dtype=dtype,
        layout=gemm_layout(shape, facts),
        names=tuple(name for name, _ in group.operators.most_common()),
        linked=group.linked,
        inferred=group.inferred,
        **duration_statistics(durations),
        tflops=tflops,
        peak_fraction=tflops * 1e12 / peak if tflops and peak else None,
        above_peak=bool(tflops and most and tflops * 1e12 > most),
        overlapped=int((overlaps > 0).sum()),
        overlapped_ns=int(overlaps.sum()),
        files=frozenset(group.files),
    )


def above_peak_warning(rows: Iterable[GemmRow]) -> str:
    """A sentence about `rows` that are faster than the device's peak; "" if none is."""
    count = sum(row.above_peak for row in rows)
    if not count:
        return ""
    are = noun_for(count, "is", "are")
    return (
        f"{plural(count, 'row')} of GEMMs {are} faster than the peak of the device (marked with "
        "!): their times or shapes are wrong, or they are sparse"
    )


def duration_statistics(durations: Int64) -> dict[str, Any]:
    """The fields of :class:`GemmRow` that follow from `durations`, which are in order."""
    median = quantile_of_sorted(durations, 0.5)
    return {
        "count": len(durations),
        "sum_ns": int(durations.sum()),
        "min_ns": int(durations[0]),
        "max_ns": int(durations[-1]),
        "median_ns": median,
        "p5_ns": quantile_of_sorted(durations, 0.05),
        "p95_ns": quantile_of_sorted(durations, 0.95),
        "mad_ns": quantile_of_sorted(np.sort(np.abs(durations - median)), 0.5),
    }


def quantile_of_sorted(samples: npt.NDArray[np.generic], share: float) -> float:
    """Quantile of sorted samples, as by :func:`gemmetry.statistics.intervals.quantile` (definition
    7 of Hyndman & Fan, 1996)."""
    place = (len(samples) - 1) * share
    below = int(place)
    low, high = float(samples[below]), float(samples[min(below + 1, len(samples) - 1)])
    return low + (high - low) * (place - below)


def peak_flops_per_s(device: str, dtype: str | None) -> float | None:
    """Dense peak of a device, by its product name, at a format; None where either is unknown."""
    spec = find_device(device)
    return spec.peaks.get(rate_class(DTYPES[dtype])) if spec and dtype in DTYPES else None


def gemm_dtype(shape: GemmShape | None, facts: KernelName) -> str | None:
    """Formats of A and B, as :attr:`GemmRow.dtype`."""
    if shape is None or shape.dtype is None:
        return facts.dtype
    return "tf32" if (shape.dtype, facts.dtype) == ("f32", "tf32") else shape.dtype


def _rate_format(shape: GemmShape | None, facts: KernelName, device: str) -> str | None:
    """The format whose peak bounds the kernel; None where it is not certain."""
    if facts.dtype is not None:
        return facts.dtype
    dtype = None if shape is None or shape.dtype is None else shape.dtype.partition(":")[0]
    spec = find_device(device)
    # f32 may be rounded to tf32, at another rate; unknown.
    return None if dtype == "f32" and spec is not None and "tf32" in spec.peaks else dtype


def gemm_layout(shape: GemmShape | None, facts: KernelName) -> str | None:
    """Layouts of A and B, as :attr:`GemmRow.layout`."""
    recorded = shape.layout if shape is not None else None
    return recorded or row_major_layout(facts.layout or "")


def row_major_layout(blas: str) -> str | None:
    """Layouts of A and B for a row-major C, from the letters of a BLAS, which supports only
    column-major matrices and therefore computes Cᵀ = Bᵀ·Aᵀ: its first operand is B."""
    if len(blas) != 2 or set(blas) - {"n", "t"}:
        return None
    flipped = {"n": "t", "t": "n"}
    return flipped[blas[1]] + flipped[blas[0]]


_NAMED_SOURCES = 3
"""Maximum number of files that a spec lists by name; with more, a spec has their number and
folder."""


class WorkloadGemm(Row):
    """All GEMMs of one product; helper passes count in the time, but not as calls."""

    m: int = fact("rows of the result")
    n: int = fact("columns of the result")
    k: int = fact("length of the sums")
    batch: int = fact("number of products")
    dtype: str | None = fact(_DTYPE)
    layout: str | None = fact(_LAYOUT)
    scaling: str = fact("how scaled formats are scaled")
    count: int = fact("calls")
    sum_ns: int = fact("total time", "µs")
    share: float = fact("share of the time of all GEMMs")
    operation: str | None = fact("name of the operation that gemmetry profile runs")
    kernels: tuple[str, ...] = fact("kernels", format="; ".join)
    reason: str | None = fact("why gemmetry profile cannot run it", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The GEMMs of traces as products, and the time of those whose shape is not known."""

    gemms: tuple[WorkloadGemm, ...]
    """GEMMs, those with the most time first."""
    sum_ns: int
    unknown_ns: int
    unknown_count: int


def workload(rows: Iterable[GemmRow]) -> Workload:
    """Rows of :class:`Gemms`, by product."""
    # A helper pass has no format or layout of its own: it is counted with its GEMM.
    rows = sorted(rows, key=lambda row: (_is_helper(row), -row.sum_ns))
    total = sum(row.sum_ns for row in rows)
    found: dict[GemmShape, list[GemmRow]] = {}
    by_shape: dict[GemmShape | None, list[GemmRow]] = {}
    lost: list[GemmRow] = []
    for row in rows:
        ones = by_shape.get(row.shape, lost)
        if row.shape is not None and not _is_helper(row):
            product = row.shape._replace(dtype=row.dtype, layout=row.layout)
            ones = found.setdefault(product, [])
            by_shape.setdefault(row.shape, ones)
        ones.append(row)
    gemms = [_gemm(product, ones, total) for product, ones in found.items()]
    return Workload(
        gemms=tuple(sorted(gemms, key=lambda gemm: -gemm.sum_ns)),
        sum_ns=total,
        unknown_ns=sum(row.sum_ns for row in lost),
        unknown_count=sum(row.count for row in lost if not _is_helper(row)),
    )


def _is_helper(row: GemmRow) -> bool:
    return row.facts.kind is KernelKind.GEMM_REDUCTION


def _gemm(product: GemmShape, rows: Sequence[GemmRow], total: int) -> WorkloadGemm:
    operation, reason = _operation(product)
    spent = sum(row.sum_ns for row in rows)
    return WorkloadGemm(
        **product._asdict(),
        operation=operation,
        reason=reason,
        count=sum(row.count for row in rows if not _is_helper(row)),
        sum_ns=spent,
        share=spent / total if total else 0.0,
        kernels=tuple(dict.fromkeys(row.facts.short for row in rows)),
    )


def _operation(product: GemmShape) -> tuple[str | None, str]:
    """The name of the operation, or why there is none.

    Missing layouts are assumed to be row-major, and a missing result format to be the default:
    traces do not record either for every operator.
    """
    names = (product.dtype or "").split(":")
    formats = [DTYPES[name] for name in names if name in DTYPES]
    if len(formats) != len(names):
        return None, f"gemmetry does not multiply {product.dtype or 'an unknown format'}"
    if product.scaling == "block":
        return None, "the blocks that share scale factors are not read from traces"
    lhs, rhs = formats[0], formats[-1]
    layout = product.layout or "tt"
    shape = MatmulShape(product.m, product.n, product.k, product.batch)
    kind = OperationKind.BATCH_MATMUL if product.batch > 1 else OperationKind.MATMUL
    try:
        signature = Signature(
            kind, lhs, rhs, default_result(lhs, rhs), Layout(layout[0]), Layout(layout[1]),
            scaling=Scaling(product.scaling),
        )  # fmt: skip
        check_shape(signature, shape)
    except RequestError as error:
        return None, error.message
    return operation_name(Operation(signature, shape)), ""


def no_shape(sources: Sequence[str], load: Workload) -> RequestError:
    """The error for traces none of whose GEMMs has a shape that gemmetry computes."""
    reasons = Counter[str]()
    for gemm in load.gemms:
        reasons[gemm.reason or ""] += gemm.count
    if reasons:
        reason, count = reasons.most_common(1)[0]
        return RequestError(
            f"gemmetry computes none of the GEMMs of {_source_list(sources)} whose shapes are "
            f"recorded: {reason} ({plural(count, 'call')})",
            hint="gemmetry trace shapes FILE lists them, with the reason for each.",
        )
    return RequestError(
        f"no GEMM of {_source_list(sources)} has a known shape that gemmetry computes",
        hint="Record with torch.profiler and record_shapes=True: operators then record shapes.",
    )


def spec_text(load: Workload, sources: Sequence[str], *, top: int = 0) -> str:
    """A spec file that ``gemmetry profile --spec`` runs, the GEMMs with the most time first.

    Args:
        sources: paths of the trace files. top: number of GEMMs to include; 0: all.

    Raises:
        RequestError: no GEMM has a shape that gemmetry supports.
    """
    chosen = load.gemms[:top] if top else load.gemms
    dispatches = grouped((gemm for gemm in chosen if gemm.operation), attrgetter("operation"))
    if not dispatches:
        raise no_shape(sources, load)
    covered = sum(gemm.sum_ns for gemms in dispatches.values() for gemm in gemms)
    lines = [
        "# The GEMMs of a workload, those with the most time first; run them with:",
        "#   gemmetry profile --spec THIS_FILE [--providers NAMES] [--device cuda:0]",
        f"# From: {_source_list(sources)}",
        f"# They are {_share(covered, load.sum_ns)} of {load.sum_ns / 1e6:.3f} ms of GEMM time.",
    ]
    if load.unknown_ns:
        lines.append(
            f"# Shape not known: {plural(load.unknown_count, 'GEMM')}, "
            f"{_share(load.unknown_ns, load.sum_ns)} of the time."
        )
    for gemm in chosen:
        if gemm.operation is None:
            size = f"{gemm.batch}x{gemm.m}x{gemm.n}x{gemm.k}"
            lines.append(f"# Left out: {gemm.count} of {size} ({gemm.share:.1%}): {gemm.reason}.")
    lines += [f"name: {_run_name(sources)}", "dispatches:"]
    width = max(map(len, dispatches))
    for name, gemms in dispatches.items():
        calls, time = plural(sum(g.count for g in gemms), "call"), sum(g.sum_ns for g in gemms)
        share = _share(time, load.sum_ns)
        lines.append(f"  - {name:<{width}}  # {calls}, {time / 1e6:.3f} ms, {share}")
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _source_list(sources: Sequence[str]) -> str:
    """Lists the files; many files are given as their number and common folder."""
    folder = str(common_folder(map(PurePath, sources)))
    if len(sources) <= _NAMED_SOURCES or folder == ".":
        return _plain(", ".join(sources))
    return f"{len(sources)} traces below {_plain(folder)}"


def common_folder(paths: Iterable[PurePath]) -> PurePath:
    """The deepest folder that holds all of `paths`; an empty path if none does."""
    levels = zip(*(path.parent.parts for path in paths), strict=False)
    return PurePath(*(one[0] for one in takewhile(lambda level: len(set(level)) == 1, levels)))


def _plain(text: str) -> str:
    """On one line and without control characters, for a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def _run_name(sources: Sequence[str]) -> str:
    """A valid run name: letters, digits, dots, dashes and underscores, at most 64."""
    one = PurePath(sources[0]) if len(sources) == 1 else common_folder(map(PurePath, sources))
    stem = one.name.partition(".json")[0] or "trace"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem.removesuffix(".pt.trace")).strip("-_")
    return f"gemms-{plain[:50]}".rstrip("-")
