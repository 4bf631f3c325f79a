from __future__ import annotations

import json

import pytest

from gemmetry.traces.figures import category_bars

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


@pytest.fixture
def graph_report(report_of, tmp_path):
    """A graph that holds a product, attention and a norm, and a kernel whose launch is lost."""
    place = {"ph": "X", "pid": 0, "tid": 7}
    names = ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "flash_fwd_kernel",
             "rms_norm_kernel")  # fmt: skip
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1,
              "ts": 0, "dur": 5, "args": {"correlation": 9}}  # fmt: skip
    run = {"device": 0, "stream": 7, "correlation": 9}
    events = [launch] + [
        {**place, "cat": "kernel", "name": name, "ts": 100 * (i + 1), "dur": 40 - 10 * i,
         "args": run}
        for i, name in enumerate(names)
    ]  # fmt: skip
    lost = {"device": 0, "stream": 7, "correlation": 77}
    events += [
        {**place, "cat": "kernel", "name": name, "ts": 1000 + 100 * i, "dur": 25, "args": lost}
        for i, name in enumerate((names[0], "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"))
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return report_of(path)


def test_a_graph_is_divided_by_what_its_kernels_do(graph_report):
    bars = {bar.label: bar for bar in category_bars(graph_report)}
    parts = dict(bars["graph"].parts)
    assert parts == {"gemm": 40.0, "attention": 30.0, "other": 20.0, "communication": 0.0}
    assert bars["graph"].hint == "graph: GEMM 40 µs, attention 30 µs, other kernels 20 µs"


def test_lost_launches_have_the_colours_of_their_kernels(graph_report):
    bars = {bar.label: bar for bar in category_bars(graph_report)}
    assert dict(bars["launch not in the trace"].parts) == {
        "gemm": 25.0, "attention": 0.0, "other": 0.0, "communication": 25.0
    }  # fmt: skip


def test_no_kernel_time_is_left_out(report_of):
    report = report_of(*RANKS)
    sheet = report.table("kernel_summary")
    spent = sheet.names.index("Kernel duration (µs)_sum")
    bars = category_bars(report)
    assert sum(sum(dict(bar.parts).values()) for bar in bars) == pytest.approx(
        sum(row[spent] for row in sheet.rows)
    )
    blue = sum(dict(bar.parts)["gemm"] for bar in bars)
    assert blue * 1000 == pytest.approx(sum(s.gemm_kernel_ns for s in report.summaries))
