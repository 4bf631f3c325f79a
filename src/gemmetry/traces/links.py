"""Assigns shapes to the GEMM kernels of a trace.

A kernel's shape is that of the innermost operator around its launch that is a GEMM. A kernel of a
graph, or one whose launch is not in the file, gets the shape of similar instances, if these all
have the same; such a shape is *inferred*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import Bools, Int64, TraceRows
from gemmetry.traces.joins import NONE, JoinedLaunches
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind
from gemmetry.traces.operators.gemms import (
    GemmShape,
    distinct_rows,
    gemm_shape,
    is_gemm_operator,
)


def enclosing_operator(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """From each of `operator` outwards, itself first, to one whose number in `chosen` is not -1; -1
    where there is none."""
    at = operator.copy()
    waiting = np.flatnonzero(at != NONE)
    while len(waiting):
        waiting = waiting[chosen[at[waiting]] == NONE]
        at[waiting] = parent[at[waiting]]
        waiting = waiting[at[waiting] != NONE]
    return at


def enclosing_among(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """The numbers in `chosen` of :func:`enclosing_operator`.

    Args:
        chosen: (operators,) a number for chosen operators, -1 for the others.

    Returns:
        The numbers; -1 where no enclosing operator is chosen.
    """
    at = enclosing_operator(operator, parent, chosen)
    result = np.full(len(at), NONE, np.int64)
    found = at != NONE
    result[found] = chosen[at[found]]
    return result


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
    shape = np.where(operator == NONE, NONE, shape_of[operator]) if len(shape_of) else operator
    main = _is_multiplication(trace, row)
    helpers = ~main

    inferred = np.zeros(len(row), bool)
    gradients = _backward_shapes(rows, launches, shape_of, shapes, innermost, shape, main)
    numbers = {known: number for number, known in enumerate(shapes)}
    for index, found in gradients.items():
        shape[index] = numbers.setdefault(found, len(numbers))
        inferred[index] = True

    is_alone = main & _alone(operator, helpers)
    lost = (shape == NONE) & (innermost == NONE)
    guess = _of_other_instances(trace, row, shape, lost)
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


def _is_multiplication(trace: Trace, row: Int64) -> Bools:
    """Whether the kernel multiplies, and is not a helper pass (the sum over the slices of split-k
    ...)."""
    helper = [i for i, n in trace.kernel_names.items() if n.kind is KernelKind.GEMM_REDUCTION]
    return ~np.isin(trace.rows.gpu.name[row], np.array(helper, np.int64))


def _alone(operator: Int64, helpers: Bools) -> Bools:
    """Whether a kernel is the only one of its operator, not counting helper passes."""
    known = operator != NONE
    counts = np.bincount(operator[known & ~helpers], minlength=int(operator.max(initial=0)) + 1)
    result: Bools = known & (counts[np.where(known, operator, 0)] == 1)
    return result


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
            result[chosen] = _only_shape(_groups(keys), known)[: len(row)][chosen]
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


def _groups(keys: Int64) -> Int64:
    """A number for each distinct row of `keys`."""
    return distinct_rows(*keys.T)[1]


def _only_shape(group: Int64, shape: Int64) -> Int64:
    """The common shape of all rows of the same group that have one; -1 where shapes differ."""
    known = shape != NONE
    count = int(group.max(initial=0)) + 1
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, NONE, np.int64)
    np.minimum.at(least, group[known], shape[known])
    np.maximum.at(most, group[known], shape[known])
    result: Int64 = np.where(least == most, most, NONE)[group]
    return result


def _backward_shapes(
    rows: TraceRows,
    launches: JoinedLaunches,
    shape_of: Int64,
    shapes: Sequence[GemmShape],
    innermost: Int64,
    shape: Int64,
    main: Bools,
) -> dict[int, GemmShape]:
    """Shapes of kernels in backward operators without a shape, from their forward operator, which
    has the same sequence number.

    A product has two gradients, A's and then B's (the order of PyTorch's ``derivatives.yaml``);
    where a backward operator launched another number of GEMMs, they cannot be assigned.
    """
    operators = rows.operators
    open_rows = np.flatnonzero((shape == NONE) & (innermost != NONE) & main)
    if not len(open_rows):
        return {}
    forward: dict[int, set[int]] = {}
    forward_rows = np.flatnonzero((shape_of != NONE) & (operators.sequence >= 0))
    for one in forward_rows.tolist():
        if not _BACKWARD.search(rows.names[operators.name[one]]):
            forward.setdefault(int(operators.sequence[one]), set()).add(int(shape_of[one]))
    if not forward:
        return {}
    members: dict[int, list[int]] = {}
    for index in open_rows.tolist():
        sequence = _backward_sequence(rows, launches.parent, int(innermost[index]))
        members.setdefault(sequence, []).append(index)
    found: dict[int, GemmShape] = {}
    for sequence, indices in members.items():
        candidates = forward.get(sequence, set())
        if len(candidates) == 1 and len(indices) == 2:
            found.update(zip(indices, _gradients(shapes[next(iter(candidates))]), strict=True))
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


def _gradients(forward: GemmShape) -> tuple[GemmShape, GemmShape]:
    """dA = dC·Bᵀ and dB = Aᵀ·dC (or its transpose); their layouts are not known."""
    m, n, k, batch, dtype, _, _ = forward
    return GemmShape(m, k, n, batch, dtype), GemmShape(k, n, m, batch, dtype)
