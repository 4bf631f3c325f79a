"""The tables of a sweep's files: golden outputs, and what they follow from."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmetry.documents.sweep_files import (
    SOURCE,
    ReportedPoint,
    collective_sheets,
    geometric_mean,
    master_table,
    operation_size,
    reported_sweep,
    sweep_samples,
    timeline_tables,
    varying_gemms,
    varying_table,
)
from gemmetry.documents.tracelens import BY_NAME
from gemmetry.documents.tracelens_workbooks import TraceLensSheets
from gemmetry.domain.tables import Table
from gemmetry.results.tables import csv_text
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import GemmKind, SweepConfiguration
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace
from gemmetry.traces.report import build_report

OVERLAP = "_with_collective_overlap"


def _collected(products):
    """The table of the collectives of all points."""
    return master_table([
        (point, f"{point.full_config}.xlsx", sheet)
        for point in products.points for sheet in products.collectives(point)
        if sheet.name == SOURCE
    ])  # fmt: skip


def test_tables_are_as_reviewed(products, golden):
    """The first columns have the names of ROCm/aorta 7eeb04e's scripts."""
    varying = varying_gemms(products.points, 5)
    tables = [varying_table(OVERLAP, varying), _collected(products),
              *timeline_tables(products.points)]  # fmt: skip
    plain, timed = (varying_table(kind, varying).names for kind in ("", "_with_timestamps"))
    assert plain == timed[: len(plain)] == tables[0].names[: len(plain)]
    golden("sweep_products", "\f\n".join(
        csv_text(Table(one.name, one.columns, [
            [float(f"{cell:.6g}") if isinstance(cell, float) else cell for cell in row]
            for row in one.rows
        ])) for one in tables
    ))  # fmt: skip


def _events(folder, threads, channels, rank):
    """The kernels of a trace file, which nothing of ours read."""
    place = folder / f"{threads}thread/nccl_{channels}channels/torch_profiler/rank{rank}"
    data = json.loads(gzip.decompress(next(place.iterdir()).read_bytes()))
    return [event for event in data["traceEvents"] if event["cat"] == "kernel"]


def _covered(event, others):
    """Of each of `others` the time in µs during which `event` ran as well, where it is positive."""
    begin, end = event["ts"], event["ts"] + event["dur"]
    shared = [min(end, o["ts"] + o["dur"]) - max(begin, o["ts"]) for o in others]
    return [time for time in shared if time > 0]


def test_every_figure_follows_from_the_trace_files(made_sweep, products):
    records = varying_table(OVERLAP, varying_gemms(products.points, 5)).records()
    assert len(records) == 3 * 2 * 2
    for record in records:
        found = _events(made_sweep, record["threads"], record["channel"], record["rank"])
        own = [event for event in found if event["name"] == record["kernel_name"]]
        shortest, longest = (pick(own, key=lambda one: one["dur"]) for pick in (min, max))
        shared = _covered(longest, [one for one in found if one["name"].startswith("nccl")])
        expected = {
            "count": len(own),
            "kernel_time_min_us": shortest["dur"], "kernel_time_max_us": longest["dur"],
            "time_diff_us": longest["dur"] - shortest["dur"],
            "min_duration_timestamp_ms": shortest["ts"] / 1000,
            "max_duration_timestamp_ms": longest["ts"] / 1000,
            "time_between_min_max_ms": abs(longest["ts"] - shortest["ts"]) / 1000,
            "min_duration_found_us": shortest["dur"], "max_duration_found_us": longest["dur"],
            "overlapping_collective_count": len(shared),
            "max_overlap_percentage": 100 * max(shared, default=0) / longest["dur"],
            "total_overlap_duration_ms": sum(shared) / 1000,
        }  # fmt: skip
        assert {name: record[name] for name in expected} == pytest.approx(expected)


def test_the_largest_differences_of_each_trace(products):
    everything, chosen = (varying_gemms(products.points, count) for count in (5, 1))
    spreads = [one.gemm.spread_us for one in everything]
    assert spreads == sorted(spreads, reverse=True)
    largest = {}
    for point, gemm in everything:
        largest.setdefault((point.full_config, gemm.rank), gemm.spread_us)
    assert [one.gemm.spread_us for one in chosen] == sorted(largest.values(), reverse=True)


def test_helpers_and_kernels_of_unknown_shape_are_not_listed(products):
    point = products.points[0]
    first = point.gemms[0]
    helper = replace(first, kind=GemmKind(kernel="splitKreduce", short="splitk", is_helper=True))
    mixed = replace(first, kind=GemmKind(kernel="nvjet_of_a_graph", short="nvjet"), max_us=1e9)
    # Without any shape, kernels are all there is.
    for gemms, expected in (((helper, mixed, first), first), ((helper, mixed), mixed)):
        (found,) = varying_gemms([replace(point, gemms=gemms)], 5)
        assert found.gemm == expected


def test_sheets_are_those_of_the_trace_report(made_sweep, analysis, products, tmp_path, sweeps):
    files = sorted((made_sweep / "256thread/nccl_4channels").rglob("*.gz"))

    def report(*paths):
        traces = [Trace(path, read_trace(path, use_cache=False)) for path in paths]
        return build_report(traces, {}, sheets=TraceLensSheets())

    whole = report(*files)
    found = collective_sheets(analysis.points[0])
    assert len(found) == 5
    for sheet in found:
        theirs = whole.table(sheet.name)
        assert sheet.names == theirs.names
        assert [*map(list, sheet.rows)] == [*map(list, theirs.rows)]
    rows = report(files[1]).table("gpu_timeline").rows
    assert products.points[0].timelines[1] == {name: (ms, share) for name, ms, share in rows}
    # Collectives of one GPU have no report.
    alone = sweeps.MadePoint(steps=1, layers=1, is_overlapped=False, ranks=1)
    (point,) = analyse_sweep(sweeps.write_sweep(tmp_path, [alone])).points
    assert SOURCE not in {sheet.name for sheet in collective_sheets(point)}


def test_operations_of_one_size_have_numbers_of_their_own():
    columns = BY_NAME[SOURCE].columns

    def sheet(channels, *operations):
        records = [
            {"Collective name": name, "Full msg size (MB)": size} for name, size in operations
        ]
        rows = [[one.get(column.name) for column in columns] for one in records]
        point = ReportedPoint(configuration=SweepConfiguration(256, channels), repeat=None)
        return point, f"collective_{channels}ch.xlsx", Table(SOURCE, columns, rows)

    gathered = ("allgather", 32.0)
    table = master_table([sheet(28, ("allreduce", 32.0), gathered, ("broadcast", 0.001)),
                          sheet(4, gathered, ("send", None))])  # fmt: skip
    names = ("operation_id", "Collective name", "channels_num")
    assert [tuple(one[name] for name in names) for one in table.records()] == [
        ("OP_01", "broadcast", 28), ("OP_02", "allgather", 4), ("OP_02", "allgather", 28),
        ("OP_03", "allreduce", 28), ("OP_04", "send", 4),
    ]  # fmt: skip
    sizes = {1 / 1024: "tiny_1.000KB", 32.0: "medium_32.00MB", 768.1406: "large_768.14MB",
             None: "unknown"}  # fmt: skip
    assert {size: operation_size(size) for size in sizes} == sizes


def _point(channels, *busy, **chosen):
    """A point whose ranks compute for these times in ms, and are busy with nothing else."""
    return ReportedPoint(
        configuration=SweepConfiguration(256, channels), repeat=None,
        timelines={
            rank: {"computation_time": (ms, 100 * ms / 8), "busy_time": (ms, 100 * ms / 8),
                   "total_time": (8.0, 100.0)}
            for rank, ms in enumerate(busy)
        }, **chosen,
    )  # fmt: skip


def test_means_spread_and_the_slowest_rank():
    """A point without traces is empty and not zero; a geometric mean keeps zeros."""
    missing = _point(16, outcome="no_traces", reason="no trace in torch_profiler/")
    data, time, percent, summary = timeline_tables([_point(4, 2.0, 7.0, 3.0), missing])
    (found,) = [record for record in data.records() if record["type"] == "busy_time"]
    expected = {"time ms": 4.0, "percent": 50.0, "num_ranks": 3, "median ms": 3.0, "min ms": 2.0,
                "max ms": 7.0, "spread ms": 5.0, "max rank": 1, "zero ranks": 0}  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    for pivot in (time, percent):
        assert pivot.names == ("type", "256thread_4ch", "256thread_16ch")
        assert {record["256thread_16ch"] for record in pivot.records()} == {None}
    first, last = summary.records()
    expected = {"busy_time_ms": 4.0, "total_time_ms": 8.0, "slowest_rank": 1,
                "slowest_rank_computation_time_ms": 7.0,
                "computation_time_spread_ms": 5.0}  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    names = ("num_ranks", "busy_time_ms", "outcome", "reason")
    assert [last[name] for name in names] == [0, None, "no_traces", missing.reason]
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    data, *_ = timeline_tables([_point(4, 2.0, 8.0), _point(8, 0.0, 8.0)], geometric=True)
    found = [one for one in data.records() if one["type"] == "busy_time"]
    assert [one["time ms"] for one in found] == pytest.approx([4.0, 0.0])
    assert [one["zero ranks"] for one in found] == [0, 1]


def test_instances_are_multiples_of_the_median_alone(products, tmp_path, sweeps):
    found = sweep_samples(products.points)
    assert (found.is_of_alone, found.kinds, found.left_out, len(found.ranks)) == (True, 2, 0, 6)
    assert found.count == sum(gemm.count for point in products.points for gemm in point.gemms)
    for one in found.ranks:
        assert np.median(one.alone) == pytest.approx(1.0, abs=0.01)
        # One of the two GEMMs is slowed by 1.3.
        assert np.quantile(one.overlapped, 0.9) == pytest.approx(1.3, abs=0.02)
    # A GEMM that never ran alone has no scale; next to one that has it is left out.
    made = sweeps.MadePoint(ranks=1, steps=1, layers=2, has_control=False)
    never = reported_sweep(analyse_sweep(sweeps.write_sweep(tmp_path, [made]))).points
    first = products.points[0]
    up = sweeps.UP.kernel
    mixed = [one for one in never[0].gemms if one.kind.kernel == up]
    mixed += [one for one in first.gemms if one.kind.kernel != up]
    plain = [replace(one, traced=None) for one in first.gemms]
    for points, expected in ((never, (False, 2, 0)),
                             ([replace(first, gemms=tuple(mixed))], (True, 1, 1)),
                             ([replace(first, gemms=tuple(plain))], (False, 2, 0))):  # fmt: skip
        found = sweep_samples(points)
        assert (found.is_of_alone, found.kinds, found.left_out) == expected


def test_names_of_points_in_files_and_folders():
    def names(*configuration, repeat=None):
        point = ReportedPoint(configuration=SweepConfiguration(*configuration), repeat=repeat)
        start = point.rank_reports(Path("out"))
        report = point.collective_report(Path("out"))
        assert report.parent.parent == Path(start).parent.parent
        return point.full_config, start, report.name

    assert names(256, 28) == (
        "256thread_28ch", "out/256thread/individual_reports/perf_28ch_", "collective_28ch.xlsx",
    )  # fmt: skip
    axes = (("NCCL_ALGO", "Ring"), ("path", "a/b"))
    assert names(256, 28, axes, repeat=2)[:2] == (
        "256thread_28ch_NCCL_ALGO=Ring_path=a_b_repeat_02",
        "out/256thread/NCCL_ALGO=Ring/path=a_b/repeat_02/individual_reports/perf_28ch_",
    )
    assert names(None, None, (("b", "32"),))[:2] == ("b=32", "out/b=32/individual_reports/perf_")
