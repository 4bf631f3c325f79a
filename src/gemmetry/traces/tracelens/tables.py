"""Tables of one trace with the names, units and definitions of TraceLens' workbook.

They include rows that TraceLens leaves out: kernels whose launch is not in the file, and those of
operators whose arguments are not recorded. Of an operator's kernels the ones that multiply come
first, never a fill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from gemmetry.domain.tables import Table
from gemmetry.formats.events import Int64, OperatorArguments
from gemmetry.traces.intervals import subtract
from gemmetry.traces.joins import NONE
from gemmetry.traces.links import Launchers, find_launchers
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import GroupStatistics, distinct_rows, grouped_statistics
from gemmetry.traces.operators.models import OperatorModel, is_reported
from gemmetry.traces.summary import Summary
from gemmetry.traces.tracelens.cells import argument_text, kernel_lists
from gemmetry.traces.tracelens.input import gemm_calls, transposes
from gemmetry.traces.tracelens.performance import (
    ModelledCalls,
    backward_calls,
    joined,
    operator_calls,
    performance_tables,
    speeds,
)
from gemmetry.traces.tracelens.sheets import BY_NAME

Rows: TypeAlias = list[tuple[Any, ...]]

SHORT_KERNEL_US = 10.0
"""TraceLens' own threshold of a short kernel."""

HISTOGRAM_BINS = 100
"""TraceLens' own number of parts."""


def trace_tables(
    trace: Trace, summary: Summary, *, short_kernel_us: float = SHORT_KERNEL_US
) -> list[Table]:
    """The tables of one trace except collectives; empty tables are left out.

    Args:
        summary: summary of the whole `trace`.
        short_kernel_us: kernels shorter than this are listed in the sheets of short kernels.
    """
    found: dict[str, Table] = {}
    for table in _tables(trace, summary, short_kernel_us):
        if table.rows:
            found[table.name] = table
        trace.let_go()
    return [found[name] for name in BY_NAME if name in found]


def gemm_sheet(trace: Trace) -> Table | None:
    """The sheet ``GEMM`` alone; None without GEMMs of operators."""
    calls = gemm_calls(trace)
    return next(iter(performance_tables(trace, calls, transposes(trace, calls))), None)


def _tables(trace: Trace, summary: Summary, short_kernel_us: float) -> Iterator[Table]:
    """All tables, in an order that keeps memory use low."""
    yield BY_NAME["gpu_timeline"].table(_timeline(trace, summary))
    maker = _Maker(trace, summary)
    yield maker.by_category()
    yield maker.by_operator()
    yield maker.by_arguments()
    yield maker.kernels()
    yield from maker.short_kernels(short_kernel_us)
    # These do not need the data of the earlier tables.
    maker = _Maker(trace, summary)
    yield maker.with_speeds()
    yield from maker.by_model()


def _timeline(trace: Trace, summary: Summary) -> Rows:
    window = summary.window_ns
    if not window:
        return []
    exposed = trace.time_of(trace.is_copy)
    if len(exposed):
        exposed = subtract(exposed, trace.time_of(~trace.is_copy))
    times = {
        "computation_time": summary.compute_union_ns,
        "exposed_comm_time": summary.exposed_comm_ns,
        "exposed_memcpy_time": exposed.length,
        "busy_time": summary.busy_ns,
        "idle_time": summary.idle_ns,
        "total_time": window,
        "total_comm_time": summary.comm_union_ns,
        "total_memcpy_time": summary.memcpy_union_ns,
    }
    return [(name, ns / 1e6, 100 * ns / window) for name, ns in times.items()]


@dataclass(frozen=True)
class _Maker:
    trace: Trace
    summary: Summary

    @cached_property
    def launchers(self) -> Launchers:
        return find_launchers(self.trace)

    @cached_property
    def modelled(self) -> ModelledCalls:
        """Calls whose work is known, without backward passes of others."""
        return joined([gemm_calls(self.trace), operator_calls(self.trace)])

    @cached_property
    def counted(self) -> Int64:
        """The launchers of the operator sheets: those that launched more than communication."""
        return np.flatnonzero(self.launchers.computes)

    def by_category(self) -> Table:
        launchers, counted = self.launchers, self.counted
        used, group = np.unique(launchers.category[counted], return_inverse=True)
        words = [launchers.categories[place] for place in used.tolist()]
        times = grouped_statistics(group, launchers.direct_ns[counted], len(words))
        rows = [
            (words[place], int(times.count[place]), ns / 1e6, share, reached)
            for place, ns, share, reached in _longest_first(times)
        ]
        return BY_NAME["ops_summary_by_category"].table(rows)

    def by_operator(self) -> Table:
        launchers, counted = self.launchers, self.counted
        names, group = np.unique(launchers.name[counted], return_inverse=True)
        direct = grouped_statistics(group, launchers.direct_ns[counted], len(names))
        subtree = grouped_statistics(group, launchers.subtree_ns[counted], len(names))
        categories: list[list[str]] = [[] for _ in names]
        for place, word in distinct_rows(group, launchers.category[counted])[0].tolist():
            categories[place].append(launchers.categories[word])
        rows = []
        for place, own, share, reached in _longest_first(direct):
            with_called = int(subtree.sum[place])
            rows.append((
                self.trace.rows.names[names[place]], own / 1e3, with_called / 1e3, own / 1e6,
                with_called / 1e6, int(direct.count[place]), repr(categories[place]),
                share, reached,
            ))  # fmt: skip
        return BY_NAME["ops_summary"].table(rows)

    def by_arguments(self) -> Table:
        """``ops_unique_args``."""
        calls = _Arguments.of(self.trace, self.launchers)
        found: Rows = []
        for place, head, share, reached in calls.rows():
            found.append((
                *head, int(calls.direct.count[place]),
                *_direct_and_subtree(calls.direct, calls.subtree, place), calls.uid(place),
                *calls.lists[place], share, reached,
            ))  # fmt: skip
        return BY_NAME["ops_unique_args"].table(found)

    def with_speeds(self) -> Table:
        """``unified_perf_summary``: operators whose work is known represent everything that they
        launched."""
        calls = _Arguments.of(self.trace, find_launchers(self.trace, whole=is_reported))
        by_name = self._models()
        models = [by_name.get(n, {}).get(a) for n, a, _ in calls.distinct.tolist()]
        rates = speeds(models, calls.group, calls.launchers.subtree_ns[calls.counted])
        found: Rows = []
        for place, head, share, reached in calls.rows():
            model = models[place]
            found.append((
                *head, calls.uid(place), int(calls.direct.count[place]),
                *_unified(model, rates[place], calls.subtree, calls.host, place),
                *calls.lists[place], model.params if model else None, model is not None,
                share, reached,
            ))  # fmt: skip
        return BY_NAME["unified_perf_summary"].table(found)

    def _models(self) -> dict[int, dict[int, OperatorModel]]:
        """The work of operators, by name and arguments."""
        operators, calls = self.trace.rows.operators, self.modelled
        found: dict[int, dict[int, OperatorModel]] = {}
        names, arguments = operators.name[calls.operator], operators.arguments[calls.operator]
        for name, argument, model in distinct_rows(names, arguments, calls.model)[0].tolist():
            found.setdefault(name, {})[argument] = calls.models[model][1]
        return found

    def by_model(self) -> list[Table]:
        """``GEMM`` and the sheets of the other families."""
        calls = joined([self.modelled, backward_calls(self.trace)])
        return performance_tables(self.trace, calls, transposes(self.trace, calls))

    def kernels(self) -> Table:
        """``kernel_summary``."""
        rows, launchers = self.trace.rows, self.launchers
        kernel = np.flatnonzero(self.trace.is_kernel)
        launcher = launchers.of_row[kernel]
        known = launcher != NONE
        words, codes = launchers.categories, np.append(launchers.category, NONE)
        parent = np.full(len(kernel), NONE, np.int64)
        parent[known] = launchers.name[launcher[known]]
        gpu = rows.gpu
        distinct, group = distinct_rows(
            codes[launcher], parent, gpu.name[kernel], gpu.stream[kernel]
        )
        times = grouped_statistics(group, gpu.duration_ns[kernel], len(distinct))
        found: Rows = []
        for place, spent, share, _ in _longest_first(times):
            category, operator, name, stream = distinct[place].tolist()
            found.append((
                words[category] if category >= 0 else None,
                rows.names[operator] if operator >= 0 else None, rows.names[name], stream,
                spent / 1e3, int(times.count[place]), _us(times.mean[place]),
                _us(times.min[place]), _us(times.max[place]), share,
                _percent(spent, self.summary.window_ns),
            ))  # fmt: skip
        return BY_NAME["kernel_summary"].table(found)

    def short_kernels(self, threshold_us: float) -> list[Table]:
        """``short_kernel_histogram`` and ``short_kernels_summary``."""
        rows, launchers = self.trace.rows, self.launchers
        gpu = rows.gpu
        short = np.flatnonzero(self.trace.is_kernel & (gpu.duration_ns < threshold_us * 1000))
        if not len(short):
            return []
        counts, edges = np.histogram(gpu.duration_ns[short] / 1000, bins=HISTOGRAM_BINS)
        histogram = list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True))
        launcher = launchers.of_row[short]
        known = launcher != NONE
        parent, arguments_of = (np.full(len(short), NONE, np.int64) for _ in range(2))
        parent[known] = launchers.name[launcher[known]]
        arguments_of[known] = launchers.arguments[launcher[known]]
        texts, number = self._short_arguments()
        distinct, group = distinct_rows(parent, number[arguments_of], gpu.name[short])
        times = grouped_statistics(group, gpu.duration_ns[short], len(distinct))
        found: Rows = []
        for place, spent, _, _ in _longest_first(times):
            operator, arguments, name = distinct[place].tolist()
            found.append((
                rows.names[operator] if operator >= 0 else None,
                *(argument_text(text) for text in texts[arguments]),
                rows.names[name], spent / 1e3, int(times.count[place]), _us(times.mean[place]),
                _percent(spent, self.summary.window_ns),
            ))  # fmt: skip
        return [
            BY_NAME[name].table(part)
            for name, part in (
                ("short_kernel_histogram", histogram), ("short_kernels_summary", found)
            )
        ]  # fmt: skip

    def _short_arguments(self) -> tuple[list[tuple[str, str, str]], Int64]:
        """Distinct shapes, strides and values (without types), and the index of each entry of
        ``TraceRows.arguments`` among them; the last entry means none."""
        numbers: dict[tuple[str, str, str], int] = {}
        entries = [*self.trace.rows.arguments, OperatorArguments()]
        found = [numbers.setdefault((e.shapes, e.strides, e.values), len(numbers)) for e in entries]
        return list(numbers), np.array(found, np.int64)


@dataclass(frozen=True)
class _Arguments:
    """Launchers grouped by name, arguments and thread; one entry per group unless stated
    otherwise."""

    trace: Trace
    launchers: Launchers
    counted: Int64
    """(calls,) index in `launchers` of those that launched more than communication."""
    group: Int64
    """(calls,)"""
    distinct: Int64
    """(groups, 3) name, arguments and thread."""
    direct: GroupStatistics
    subtree: GroupStatistics
    host: GroupStatistics
    lists: list[tuple[str, str]]

    @staticmethod
    def of(trace: Trace, launchers: Launchers) -> _Arguments:
        counted = np.flatnonzero(launchers.computes)
        distinct, group = distinct_rows(
            launchers.name[counted], launchers.arguments[counted], launchers.thread[counted]
        )
        count = len(distinct)
        direct, subtree, host = (
            grouped_statistics(group, times[counted], count)
            for times in (launchers.direct_ns, launchers.subtree_ns, launchers.host_ns)
        )
        # The group of each GPU row; -1 for communication and rows without a known launcher.
        of_launcher = np.full(len(launchers.name) + 1, NONE, np.int64)
        of_launcher[counted] = group
        of_row = of_launcher[launchers.of_row]
        of_row[trace.is_communication] = NONE
        lists = kernel_lists(trace, of_row, count)
        return _Arguments(trace, launchers, counted, group, distinct, direct, subtree, host, lists)

    @cached_property
    def _first(self) -> Int64:
        """Index in `launchers` of the first call."""
        first = np.full(len(self.distinct), NONE, np.int64)
        first[self.group[::-1]] = self.counted[::-1]
        return first

    def uid(self, place: int) -> int | None:
        """External id of the first call."""
        identity = int(self.launchers.external_id[self._first[place]])
        return identity if identity > 0 else None

    def rows(self) -> Iterator[tuple[int, tuple[Any, ...], float | None, float]]:
        """Index, cells up to ``Concrete Inputs``, and shares of the time; those with the most
        direct time first."""
        rows, launchers = self.trace.rows, self.launchers
        for place, _, share, reached in _longest_first(self.direct):
            name, arguments, thread = self.distinct[place].tolist()
            recorded = rows.arguments[arguments] if arguments >= 0 else OperatorArguments()
            category = launchers.categories[launchers.category[self._first[place]]]
            head = (
                rows.names[name], category, None, None, rows.threads[thread],
                *(argument_text(text) for text in
                  (recorded.shapes, recorded.dtypes, recorded.strides, recorded.values)),
            )  # fmt: skip
            yield place, head, share, reached


def _direct_and_subtree(
    direct: GroupStatistics, subtree: GroupStatistics, place: int
) -> list[float | None]:
    """Mean, median, std, min, max and sum in µs, alternating between direct and subtree."""
    cells = []
    for name in ("mean", "median", "std", "min", "max", "sum"):
        cells += [_us(getattr(direct, name)[place]), _us(getattr(subtree, name)[place])]
    return cells


def _unified(
    model: OperatorModel | None,
    rates: tuple[float | None, ...],
    kernels: GroupStatistics,
    host: GroupStatistics,
    place: int,
) -> tuple[Any, ...]:
    """Cells of ``unified_perf_summary`` from ``total_duration_us`` to ``Kernel Time (µs)_max``."""
    of_bytes, of_flops = rates[:5], rates[5:]
    amounts: tuple[Any, ...] = (None,) * 4
    if model is not None:
        amounts = (model.gflops, model.mebibytes, model.intensity, model.spec)
    host_us, kernel_us = ([_us(getattr(found, name)[place]) for name in
                           ("mean", "median", "std", "min", "max", "sum")]
                          for found in (host, kernels))  # fmt: skip
    mean, median, std, low, high, total = range(6)
    return (
        host_us[total], host_us[mean], host_us[std], *amounts,
        of_bytes[0], of_bytes[2], of_flops[0], of_flops[2],
        kernel_us[mean], kernel_us[std], kernel_us[total],
        host_us[median], host_us[low], host_us[high],
        of_bytes[1], of_bytes[3], of_bytes[4], of_flops[1], of_flops[3], of_flops[4],
        kernel_us[median], kernel_us[low], kernel_us[high],
    )  # fmt: skip


def _longest_first(times: GroupStatistics) -> Iterator[tuple[int, int, float | None, float]]:
    """Index, time in ns, share of all time and the sum of shares up to here, of each group; those
    with the most time first."""
    total, reached = int(times.sum.sum()), 0.0
    for place in np.argsort(-times.sum, kind="stable").tolist():
        ns = int(times.sum[place])
        share = _percent(ns, total)
        reached += share or 0.0
        yield place, ns, share, reached


def _us(ns: float) -> float | None:
    return None if np.isnan(ns) else float(ns) / 1000


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
