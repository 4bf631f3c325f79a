"""Figures of traces: bars, tiles and the timeline."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET

import pytest

from gemmetry.traces import figures as module
from gemmetry.traces.figures import (
    Bar,
    bars_html,
    category_bars,
    gemm_bars,
    gpu_tiles,
    time_bars,
    timeline_groups,
    window_parts,
)

HOSTILE = "<script>alert(1)</script>"
RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


@pytest.fixture(scope="module")
def two_ranks(report_of):
    return report_of(*RANKS)


@pytest.fixture
def graph_report(report_of, tmp_path):
    """A graph that holds a product, attention and a norm, and a kernel whose launch is lost."""
    place = {"ph": "X", "pid": 0, "tid": 7}
    names = ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "flash_fwd_kernel",
             "rms_norm_kernel")  # fmt: skip
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1,
              "ts": 0, "dur": 5, "args": {"correlation": 9}}  # fmt: skip
    run, lost = ({"device": 0, "stream": 7, "correlation": number} for number in (9, 77))
    events = [launch] + [
        {**place, "cat": "kernel", "name": name, "ts": 100 * (i + 1), "dur": 40 - 10 * i,
         "args": run}
        for i, name in enumerate(names)
    ]  # fmt: skip
    events += [
        {**place, "cat": "kernel", "name": name, "ts": 1000 + 100 * i, "dur": 25, "args": lost}
        for i, name in enumerate((names[0], "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"))
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return report_of(path)


def test_a_graph_and_lost_launches_are_divided_by_what_their_kernels_do(graph_report):
    bars = {bar.label: bar for bar in category_bars(graph_report)}
    assert dict(bars["graph"].parts) == {
        "gemm": 40.0, "attention": 30.0, "other": 20.0, "communication": 0.0,
    }  # fmt: skip
    assert bars["graph"].hint == "graph: GEMM 40 µs, attention 30 µs, other kernels 20 µs"
    assert dict(bars["launch not in the trace"].parts) == {
        "gemm": 25.0, "attention": 0.0, "other": 0.0, "communication": 25.0
    }  # fmt: skip
    # A product of unknown shape is identified by its kernel.
    (row,) = graph_report.gemms
    (bar,) = gemm_bars([row])
    assert (bar.label, "shape not known" in bar.hint) == (row.facts.short, True)
    nameless = dataclasses.replace(row, facts=dataclasses.replace(row.facts, short=""))
    assert gemm_bars([nameless])[0].label == row.kernel


def test_no_kernel_time_is_left_out(two_ranks):
    sheet = two_ranks.table("kernel_summary")
    spent = sheet.names.index("Kernel duration (µs)_sum")
    parts = [dict(bar.parts) for bar in category_bars(two_ranks)]
    total = sum(row[spent] for row in sheet.rows)
    assert sum(sum(one.values()) for one in parts) == pytest.approx(total)
    blue = sum(one["gemm"] for one in parts)
    assert blue * 1000 == pytest.approx(sum(s.gemm_kernel_ns for s in two_ranks.summaries))


def test_texts_are_escaped_and_both_ends_of_a_long_label_kept():
    page = bars_html([Bar(HOSTILE, (('"><script>', 1.0),), HOSTILE, "\x1b" + HOSTILE)], HOSTILE)
    assert "<script" not in page and "\x1b" not in page
    ET.fromstring(page)
    page = bars_html([Bar("first_" + "x" * 80 + "_last", (("gemm", 1.0),), "")], "t")
    (label,) = re.findall(r'class="label"[^>]*>([^<]*)<', page)
    assert (label[:7], label[-6:], len(label)) == ("first_x", "x_last", 44)


def test_parts_of_time_add_up_to_the_window(job_report):
    bars = time_bars(job_report.summaries)
    assert [bar.label for bar in bars] == ["rank0", "rank1", "rank2", "rank3"]
    for bar, summary in zip(bars, job_report.summaries, strict=True):
        assert sum(length for _, length in bar.parts) == pytest.approx(1)
        assert sum(window_parts(summary).values()) == summary.window_ns
    # Kernels that run at the same time take no more than all computing.
    twice = dataclasses.replace(summary, gemm_kernel_ns=2 * summary.compute_union_ns)
    parts = window_parts(twice)
    assert (parts["gemm"], parts["other"]) == (summary.compute_union_ns, 0)
    short = dataclasses.replace(summary, window_ns=41_500)
    assert [bar.value for bar in time_bars([short])] == ["41.5 µs"]


def test_the_time_of_a_job_is_not_the_sum_of_its_ranks(two_ranks):
    """Ranks that do not overlap have no common time."""
    (job,) = two_ranks.jobs
    late, rank = 10**15, job.job.ranks[1]
    moved = dataclasses.replace(rank, span=(rank.span[0] + late, rank.span[1] + late))
    apart = dataclasses.replace(job.job, ranks=(job.job.ranks[0], moved))
    jobs = [dataclasses.replace(job, job=apart, clocks=())]
    first = gpu_tiles(dataclasses.replace(two_ranks, jobs=jobs))[0]
    assert (first["label"], first["value"]) == ("longest rank", "25.3 ms")


def test_ranks_of_a_job_stand_on_one_time_axis(job_report, monkeypatch):
    (group,) = timeline_groups(job_report)
    lanes = [lane for lane in group["lanes"] if "start" in lane]
    assert {lane["label"].split(" · ")[0] for lane in lanes} == {f"rank {r}" for r in range(4)}
    assert max(sum(lane["start"]) + lane["length"][-1] for lane in lanes) == group["window"]
    assert min(lane["start"][0] for lane in lanes) == 0
    assert sum(len(lane["start"]) for lane in lanes) == sum(
        len(lane.start_ns) for lane in job_report.lanes
    )
    assert group["left_out"] == 0
    speeds = sorted(speed for lane in lanes for speed in lane.get("bandwidth") or () if speed)
    reported = [one.bus_bandwidth for one in job_report.jobs[0].matching.matched]
    assert speeds == sorted(round(one, 2) for one in reported if one for _ in range(4))
    # Of too many lanes those with most work are drawn.
    monkeypatch.setattr(module, "MOST_LANES", 3)
    (group,) = timeline_groups(job_report)
    assert len([lane for lane in group["lanes"] if "start" in lane]) == 3
    assert group["left_out"] == len(job_report.lanes) - 3


def test_work_has_its_operator_its_shape_and_what_it_sent(two_ranks, report_of):
    (group,) = timeline_groups(two_ranks)
    gemm = next(work for work in group["works"] if work[0].startswith("nvjet"))
    assert gemm[1] in ("aten::addmm", "aten::mm")
    assert re.fullmatch(r"16384x\d+x\d+ bf16 tn", gemm[2])
    assert gemm[3] >= 2 * 16384 * 4096 * 4096
    sent = {work[2] for work in group["works"] if "nccl" in work[0].lower()}
    assert sent == {"all_gather · 384 MiB BFloat16 · 4 ranks"}
    # Two of its four ranks have no file: a bandwidth would be a bound.
    assert all(lane.get("bandwidth") is None for lane in group["lanes"])
    groups = timeline_groups(report_of("cpu_grid"))
    assert [group["label"] for group in groups] == [
        "config_0002/repeat_01", "config_0002/repeat_02", "config_0003/repeat_01"]  # fmt: skip
    for group in groups:
        (lane,) = group["lanes"]
        assert re.fullmatch(r"thread \d+", lane["label"])
        (shape,) = {work[2] for work in group["works"] if work[0] == "aten::mm"}
        assert re.fullmatch(r"256x256x256 (bf16|f32) t[tn]", shape)
