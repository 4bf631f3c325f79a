"""The operators on the host, by name and arguments, in a trace without GPU work.

Such a CPU trace has no kernels: an operator computes while it runs. Its *self time* is the time
during which none of the operators nested in it, on the same thread, runs; the self times of a
thread add up exactly to the duration of its outermost operators, in whole nanoseconds. An operator
that outlasts the enclosing one, which occurs in damaged files, counts up to the end of the
enclosing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from gemmetry.domain.rows import Row, derived, fact
from gemmetry.formats.events import Int64, OperatorArguments, OperatorRows
from gemmetry.traces.gemms import (
    GemmRow,
    duration_statistics,
    members_of,
    operator_shapes,
    part_of,
    quantile_of_sorted,
    shape_facts,
)
from gemmetry.traces.joins import NONE, decoded_list, enclosing_operator
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind, KernelName
from gemmetry.traces.operators.gemms import (
    SCALED_OPERATORS,
    GemmShape,
    distinct_rows,
    packed_in,
    tensor_format,
)

_MOST_INPUTS = 8
"""Number of names listed in messages."""

_NAME_CHARACTERS = 60
"""Characters of an operator's name that is used in place of a kernel's short name."""


class HostOperator(Row):
    """All calls of one operator with the same input sizes and types.

    Durations of calls include nested operators. No product counts twice: it is that of the
    innermost operator (``aten::mm`` in ``aten::matmul``).
    """

    file: Path | None
    """File; None for the calls of all files together."""
    files: int
    product: GemmShape | None
    """The matrix product that each call computes."""

    source = derived("the trace", key="file", type=str)(lambda row: str(row.file))
    name: str = fact("operator")
    input_dims: str | None = fact("sizes of its inputs")
    """JSON as in the trace; "" where it is missing, as for the types."""
    input_types: str | None = fact("types of its inputs")
    count: int = fact("calls")
    total_ns: int = fact("total time with nested operators", "µs")
    self_ns: int = fact("total time without nested operators", "µs")
    self_share: float | None = fact("share of the file's self time", default=None)
    median_ns: float = fact("median time", "µs")
    min_ns: int = fact("shortest time", "µs")
    max_ns: int = fact("longest time", "µs")
    m, n, k, batch, dtype, layout = shape_facts("product")

    @derived("speed of the median call", "10¹² FLOP/s")
    def tflops(self) -> float | None:
        """TFLOP/s; None for operators that are not products."""
        if self.product is None or self.median_ns <= 0:
            return None
        return self.product.flops / self.median_ns / 1000

    @property
    def inputs(self) -> str:
        """The inputs for display: ``256x256 f32, 256x256 f32``."""
        dims, types = (decoded_list(text or "") for text in (self.input_dims, self.input_types))
        found = []
        for size, spelling in zip_longest(dims[:_MOST_INPUTS], types[:_MOST_INPUTS]):
            sizes = "x".join(map(str, size)) if isinstance(size, list) else ""
            name = spelling if isinstance(spelling, str) else ""
            # Sizes are as recorded, so they count the elements of a packed type.
            shown = name if packed_in(name) > 1 else tensor_format(name) or name
            found.append(" ".join(filter(None, (sizes, shown))))
        more = max(len(dims), len(types)) - len(found)
        return ", ".join([*filter(None, found), *[f"and {more} more"] * (more > 0)])


@dataclass(frozen=True, slots=True)
class Nesting:
    """Nesting of operators; arrays have one entry per row of ``TraceRows.operators``."""

    parent: Int64
    """The operator around it on the same thread; -1: none."""
    depth: Int64
    """Number of enclosing operators."""
    end_ns: Int64
    """End, limited to the ends of all enclosing operators, but not before the start."""
    self_ns: Int64


@dataclass(frozen=True, slots=True)
class Pieces:
    """Intervals in which one operator was the innermost of its thread, by thread and start."""

    operator: Int64
    start_ns: Int64
    duration_ns: Int64


def find_nesting(operators: OperatorRows, parent: Int64) -> Nesting:
    """Depths, ends and self times.

    Args:
        parent: (operators,) like ``Launches.parent``.
    """
    count = len(parent)
    start = operators.start_ns
    # An additional entry means "not enclosed".
    jump = np.append(np.where(parent == NONE, count, parent), count)
    depth = (jump != count).astype(np.int64)
    end = np.append(start + operators.duration_ns, np.iinfo(np.int64).max)
    # Each round reaches twice as far out, so that deep nesting costs its logarithm.
    while (jump != count).any():
        end = np.minimum(end, end[jump])
        depth += depth[jump]
        jump = jump[jump]
    ends = np.maximum(end[:count], start)
    length = ends - start
    own = length.copy()
    nested = np.flatnonzero(parent != NONE)
    np.subtract.at(own, parent[nested], length[nested])
    return Nesting(parent, depth[:count], ends, own)


def innermost_pieces(operators: OperatorRows, nesting: Nesting) -> Pieces:
    """The time of each thread, by the innermost operator."""
    chosen = np.flatnonzero(nesting.end_ns > operators.start_ns)
    depth = nesting.depth[chosen]
    thread = np.tile(operators.thread[chosen], 2)
    time = np.concatenate([operators.start_ns[chosen], nesting.end_ns[chosen]])
    is_start = np.arange(len(time)) < len(chosen)
    # At one moment ends come first, from the innermost outwards, then starts inwards.
    order = np.lexsort((np.concatenate([depth, -depth]), is_start, time, thread))
    owner = np.concatenate([chosen, nesting.parent[chosen]])[order]
    time, thread = time[order], thread[order]
    duration = np.diff(time, append=time[-1:])
    # A thread's last boundary is the end of an operator that is not enclosed.
    kept = np.flatnonzero((owner != NONE) & (duration > 0))
    return Pieces(owner[kept], time[kept], duration[kept])


def innermost_products(trace: Trace) -> tuple[list[GemmShape], Int64]:
    """The distinct matrix products of operators, and (operators,) the index of each operator's
    product; -1 for operators that are not products and for those in which a nested operator
    computes it.

    A scaled product represents the products nested in it: on a CPU torch widens narrow formats and
    calls ``aten::mm``, which shows neither the requested formats nor the factors.
    """
    shapes, shape_of = operator_shapes(trace.rows)
    parent, names = trace.launches.parent, trace.rows.names
    scaled = [index for index, name in enumerate(names) if name in SCALED_OPERATORS]
    is_scaled = np.isin(trace.rows.operators.name, np.array(scaled, np.int64))
    within = np.flatnonzero((shape_of != NONE) & ~is_scaled)
    is_outer = np.where(is_scaled & (shape_of != NONE), 0, NONE)
    around = enclosing_operator(parent[within], parent, is_outer)
    shape_of[within[around != NONE]] = NONE
    product = np.flatnonzero(shape_of != NONE)
    around = enclosing_operator(parent[product], parent, shape_of)
    shape_of[around[around != NONE]] = NONE
    return shapes, shape_of


_Key = tuple[str, str, str, GemmShape | None]


class HostOperators:
    """Operators of traces, which are added one by one and not kept."""

    def __init__(self) -> None:
        self._durations: dict[_Key, list[Int64]] = {}
        self._self_ns: dict[_Key, int] = {}

    def add(self, trace: Trace) -> list[HostOperator]:
        """The operators of `trace`, those with the most self time first."""
        rows, operators = trace.rows, trace.rows.operators
        if not len(operators.name):
            return []
        self_ns = find_nesting(operators, trace.launches.parent).self_ns
        shapes, shape_of = innermost_products(trace)
        distinct, which = distinct_rows(operators.name, _arguments_alike(trace), shape_of)
        own = np.zeros(len(distinct), np.int64)
        np.add.at(own, which, self_ns)
        found = []
        for members, spent, (name, arguments, shape) in zip(
            members_of(which, len(distinct)), own.tolist(), distinct.tolist(), strict=True
        ):
            parts = operators.duration_ns[members]
            recorded = rows.arguments[arguments] if arguments != NONE else OperatorArguments()
            product = shapes[shape] if shape != NONE else None
            key = (rows.names[name], recorded.shapes, recorded.dtypes, product)
            self._durations.setdefault(key, []).append(parts)
            self._self_ns[key] = self._self_ns.get(key, 0) + spent
            found.append(_row(trace.file, key, [parts], spent))
        return _by_self_time(found)

    def rows(self) -> list[HostOperator]:
        """The operators of all traces together, those with the most self time first."""
        return _by_self_time(
            [_row(None, key, parts, self._self_ns[key]) for key, parts in self._durations.items()]
        )

    def products(self) -> list[GemmRow]:
        """The matrix products of all traces together as rows of the table of GEMMs, in which
        operators stand for kernels; those with the most time first."""
        found: dict[tuple[str, GemmShape], list[Int64]] = {}
        for (name, _, _, shape), parts in self._durations.items():
            if shape is not None:
                found.setdefault((name, shape), []).extend(parts)
        rows = [_product_row(name, shape, parts) for (name, shape), parts in found.items()]
        return sorted(rows, key=lambda row: (-row.sum_ns, row.kernel, str(row.shape)))


def without_gpu_text(files: Sequence[Path], count: int) -> str:
    """The beginning of a sentence stating that `files`, of `count` traces, have no GPU work."""
    if len(files) == 1:
        return f"{files[0]} has no work on a GPU"
    if len(files) == count:
        return f"none of {count} traces has work on a GPU"
    return f"{len(files)} of {count} traces have no work on a GPU"


def _arguments_alike(trace: Trace) -> Int64:
    """The first entry of ``TraceRows.arguments`` with the sizes and types of each operator."""
    first: dict[tuple[str, str], int] = {}
    recorded = enumerate(trace.rows.arguments)
    # The last entry is for operators without arguments, whose index is -1.
    alike = [first.setdefault((one.shapes, one.dtypes), index) for index, one in recorded]
    alike.append(first.get(("", ""), NONE))
    return np.array(alike, np.int64)[trace.rows.operators.arguments]


def _row(file: Path | None, key: _Key, parts: list[Int64], self_ns: int) -> HostOperator:
    name, dims, types, product = key
    durations = np.sort(np.concatenate(parts))
    return HostOperator(
        file=file,
        files=len(parts),
        name=name,
        input_dims=dims,
        input_types=types,
        count=len(durations),
        total_ns=int(durations.sum()),
        self_ns=self_ns,
        median_ns=quantile_of_sorted(durations, 0.5),
        min_ns=int(durations[0]),
        max_ns=int(durations[-1]),
        product=product,
    )


def _by_self_time(rows: list[HostOperator]) -> list[HostOperator]:
    """Operators with the most self time first, each with its share."""
    whole = sum(row.self_ns for row in rows)
    rows = [replace(row, self_share=part_of(row.self_ns, whole)) for row in rows]
    return sorted(rows, key=lambda row: (-row.self_ns, row.name, row.input_dims, row.input_types))


def _product_row(name: str, shape: GemmShape, parts: list[Int64]) -> GemmRow:
    durations: Int64 = np.sort(np.concatenate(parts))
    median = quantile_of_sorted(durations, 0.5)
    return GemmRow(
        kernel=name,
        facts=KernelName(kind=KernelKind.GEMM, short=name[:_NAME_CHARACTERS]),
        shape=shape,
        dtype=shape.dtype,
        layout=shape.layout,
        names=(name,),
        linked=len(durations),
        **duration_statistics(durations),
        tflops=shape.flops / median / 1000 if median > 0 else None,
        overlapped=0,
        overlapped_ns=0,
    )
