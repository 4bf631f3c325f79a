"""Tables of one trace with the names, units and definitions of TraceLens' workbook.

What TraceLens leaves out has rows here too: kernels whose launch is not in the file, and those of
operators whose arguments are not recorded. Of an operator's kernels the ones that multiply come
first, never a fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from gemmetry.formats.events import GpuKind, Int64, OperatorArguments
from gemmetry.traces.grouped import GroupStatistics, grouped_statistics
from gemmetry.traces.intervals import subtract
from gemmetry.traces.joins import NONE
from gemmetry.traces.launchers import Launchers, find_launchers
from gemmetry.traces.model import Trace
from gemmetry.traces.summary import Summary
from gemmetry.traces.tracelens_cells import argument_text, kernel_lists
from gemmetry.traces.tracelens_gemms import GemmCalls, GemmModel, gemm_calls, gemm_sheet, speeds
from gemmetry.traces.tracelens_sheets import BY_NAME, Table

Rows: TypeAlias = list[tuple[Any, ...]]

SHORT_KERNEL_US = 10.0
"""TraceLens' own threshold of a short kernel."""

HISTOGRAM_BINS = 100
"""TraceLens' own number of parts."""


def trace_tables(
    trace: Trace, summary: Summary, *, short_kernel_us: float = SHORT_KERNEL_US
) -> list[Table]:
    """The tables of one trace, but for collectives; those that would be empty are left out.

    Args:
        summary: of the whole `trace`.
        short_kernel_us: kernels shorter than this are in the sheets of short kernels.
    """
    maker = _Maker(trace, summary)
    tables = [
        Table("gpu_timeline", BY_NAME["gpu_timeline"].headings, _timeline(trace, summary)),
        maker.by_category(),
        maker.by_operator(),
        *maker.by_arguments(),
        gemm_sheet(trace, maker.gemms, trace.rows.threads),
        maker.kernels(),
        *maker.short_kernels(short_kernel_us),
    ]
    return [table for table in tables if table.rows]


def _timeline(trace: Trace, summary: Summary) -> Rows:
    window = summary.window_ns
    if not window:
        return []
    gpu = trace.rows.gpu
    memcpy = gpu.kind == GpuKind.MEMCPY
    exposed = trace.time_of(memcpy)
    if len(exposed):
        exposed = subtract(exposed, trace.time_of(~memcpy))
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
    def gemms(self) -> GemmCalls:
        return gemm_calls(self.trace)

    @cached_property
    def counted(self) -> Int64:
        """The launchers of the operator sheets: those that launched more than communication."""
        return np.flatnonzero(self.launchers.computes)

    def by_category(self) -> Table:
        counted = self.counted
        words = sorted({self.launchers.category[i] for i in counted.tolist()})
        number = {word: place for place, word in enumerate(words)}
        group = np.array([number[self.launchers.category[i]] for i in counted.tolist()], np.int64)
        times = grouped_statistics(group, self.launchers.direct_ns[counted], len(words))
        total = int(times.sum.sum())
        rows, reached = [], 0.0
        for place in np.argsort(-times.sum, kind="stable").tolist():
            share = _percent(int(times.sum[place]), total)
            reached += share or 0.0
            rows.append((words[place], int(times.count[place]), int(times.sum[place]) / 1e6, share,
                         reached))  # fmt: skip
        return Table("ops_summary_by_category", BY_NAME["ops_summary_by_category"].headings, rows)

    def by_operator(self) -> Table:
        launchers, counted = self.launchers, self.counted
        names, group = np.unique(launchers.name[counted], return_inverse=True)
        direct = grouped_statistics(group, launchers.direct_ns[counted], len(names))
        subtree = grouped_statistics(group, launchers.subtree_ns[counted], len(names))
        categories: list[set[str]] = [set() for _ in names]
        for place, launcher in zip(group.tolist(), counted.tolist(), strict=True):
            categories[place].add(launchers.category[launcher])
        total = int(direct.sum.sum())
        rows, reached = [], 0.0
        for place in np.argsort(-direct.sum, kind="stable").tolist():
            share = _percent(int(direct.sum[place]), total)
            reached += share or 0.0
            own, with_called = int(direct.sum[place]), int(subtree.sum[place])
            rows.append((
                self.trace.rows.names[names[place]], own / 1e3, with_called / 1e3, own / 1e6,
                with_called / 1e6, int(direct.count[place]), repr(sorted(categories[place])),
                share, reached,
            ))  # fmt: skip
        return Table("ops_summary", BY_NAME["ops_summary"].headings, rows)

    def by_arguments(self) -> list[Table]:
        """``ops_unique_args`` and ``unified_perf_summary``."""
        launchers, counted, rows = self.launchers, self.counted, self.trace.rows
        keys = np.column_stack(
            [launchers.name[counted], launchers.arguments[counted], launchers.thread[counted]]
        )
        distinct, group = np.unique(keys, axis=0, return_inverse=True)
        group, count = group.reshape(-1), len(distinct)
        direct = grouped_statistics(group, launchers.direct_ns[counted], count)
        subtree = grouped_statistics(group, launchers.subtree_ns[counted], count)
        host = grouped_statistics(group, launchers.host_ns[counted], count)
        first = np.full(count, NONE, np.int64)
        first[group[::-1]] = counted[::-1]
        lists = kernel_lists(self.trace, self._groups_of_rows(counted, group), count)
        models = self._models(distinct)
        total = int(direct.sum.sum())
        order = np.argsort(-direct.sum, kind="stable").tolist()
        unique: Rows = []
        unified: Rows = []
        reached = 0.0
        for place in order:
            name, arguments, thread = distinct[place].tolist()
            told = rows.arguments[arguments] if arguments >= 0 else OperatorArguments()
            launcher = int(first[place])
            share = _percent(int(direct.sum[place]), total)
            reached += share or 0.0
            identity = int(launchers.external_id[launcher])
            head = (
                rows.names[name], launchers.category[launcher], None, None, rows.threads[thread],
                *(argument_text(text) for text in
                  (told.shapes, told.dtypes, told.strides, told.values)),
            )  # fmt: skip
            uid = identity if identity > 0 else None
            calls = int(direct.count[place])
            unique.append((
                *head, calls, *_direct_and_subtree(direct, subtree, place), uid, *lists[place],
                share, reached,
            ))  # fmt: skip
            model = models.get(name, {}).get(arguments)
            times = launchers.subtree_ns[counted[group == place]] / 1000 if model else None
            unified.append((
                *head, uid, calls, *_unified(model, times, subtree, host, place), *lists[place],
                model.params if model else None, model is not None, share, reached,
            ))  # fmt: skip
        return [
            Table(name, BY_NAME[name].headings, found)
            for name, found in (("ops_unique_args", unique), ("unified_perf_summary", unified))
        ]

    def _groups_of_rows(self, counted: Int64, group: Int64) -> Int64:
        """The group of each GPU row; -1 for communication and what no launcher is known of."""
        of_launcher = np.full(len(self.launchers.name) + 1, NONE, np.int64)
        of_launcher[counted] = group
        result = of_launcher[self.launchers.of_row]
        result[self.trace.is_communication] = NONE
        return result

    def _models(self, distinct: Int64) -> dict[int, dict[int, GemmModel]]:
        """What operators compute, by name and arguments."""
        operators, calls = self.trace.rows.operators, self.gemms
        found: dict[int, dict[int, GemmModel]] = {}
        names, arguments = operators.name[calls.operator], operators.arguments[calls.operator]
        keys = np.column_stack([names, arguments, calls.model]).reshape(-1, 3)
        for name, told, model in np.unique(keys, axis=0).tolist():
            found.setdefault(name, {})[told] = calls.models[model][1]
        return found

    def kernels(self) -> Table:
        """``kernel_summary``."""
        rows, launchers = self.trace.rows, self.launchers
        kernel = np.flatnonzero(self.trace.is_kernel)
        launcher = launchers.of_row[kernel]
        known = launcher != NONE
        words = sorted(set(launchers.category))
        number = {word: place for place, word in enumerate(words)}
        codes = np.array([*(number[word] for word in launchers.category), NONE], np.int64)
        parent = np.full(len(kernel), NONE, np.int64)
        parent[known] = launchers.name[launcher[known]]
        gpu = rows.gpu
        keys = np.column_stack([codes[launcher], parent, gpu.name[kernel], gpu.stream[kernel]])
        distinct, group = np.unique(keys, axis=0, return_inverse=True)
        times = grouped_statistics(group.reshape(-1), gpu.duration_ns[kernel], len(distinct))
        total = int(times.sum.sum())
        found: Rows = []
        for place in np.argsort(-times.sum, kind="stable").tolist():
            category, operator, name, stream = distinct[place].tolist()
            spent = int(times.sum[place])
            found.append((
                words[category] if category >= 0 else None,
                rows.names[operator] if operator >= 0 else None, rows.names[name], stream,
                spent / 1e3, int(times.count[place]), _us(times.mean[place]),
                _us(times.min[place]), _us(times.max[place]), _percent(spent, total),
                _percent(spent, self.summary.window_ns),
            ))  # fmt: skip
        return Table("kernel_summary", BY_NAME["kernel_summary"].headings, found)

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
        parent, told = (np.full(len(short), NONE, np.int64) for _ in range(2))
        parent[known] = launchers.name[launcher[known]]
        told[known] = launchers.arguments[launcher[known]]
        texts, number = self._short_arguments()
        keys = np.column_stack([parent, number[told], gpu.name[short]])
        distinct, group = np.unique(keys, axis=0, return_inverse=True)
        times = grouped_statistics(group.reshape(-1), gpu.duration_ns[short], len(distinct))
        found: Rows = []
        for place in np.argsort(-times.sum, kind="stable").tolist():
            operator, arguments, name = distinct[place].tolist()
            spent = int(times.sum[place])
            found.append((
                rows.names[operator] if operator >= 0 else None,
                *(argument_text(text) for text in texts[arguments]),
                rows.names[name], spent / 1e3, int(times.count[place]), _us(times.mean[place]),
                _percent(spent, self.summary.window_ns),
            ))  # fmt: skip
        return [
            Table(name, BY_NAME[name].headings, part)
            for name, part in (
                ("short_kernel_histogram", histogram), ("short_kernels_summary", found)
            )
        ]  # fmt: skip

    def _short_arguments(self) -> tuple[list[tuple[str, str, str]], Int64]:
        """Distinct shapes, strides and values (types aside), and which one each entry of
        ``TraceRows.arguments`` has; the last entry stands for none."""
        numbers: dict[tuple[str, str, str], int] = {}
        entries = [*self.trace.rows.arguments, OperatorArguments()]
        found = [numbers.setdefault((e.shapes, e.strides, e.values), len(numbers)) for e in entries]
        return list(numbers), np.array(found, np.int64)


def _direct_and_subtree(
    direct: GroupStatistics, subtree: GroupStatistics, place: int
) -> list[float | None]:
    """Mean, median, std, min, max and sum in µs, direct and subtree in turns."""
    cells = []
    for name in ("mean", "median", "std", "min", "max", "sum"):
        cells += [_us(getattr(direct, name)[place]), _us(getattr(subtree, name)[place])]
    return cells


def _unified(
    model: GemmModel | None,
    times_us: Any,
    kernels: GroupStatistics,
    host: GroupStatistics,
    place: int,
) -> tuple[Any, ...]:
    """Cells of ``unified_perf_summary`` from ``total_duration_us`` to ``Kernel Time (µs)_max``."""
    rates = speeds(model, times_us) if model is not None else (None,) * 10
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


def _us(ns: float) -> float | None:
    return None if np.isnan(ns) else float(ns) / 1000


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
