from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.documents.tracelens_workbooks import (
    TraceLensSheets,
    workbook_gemms,
    workbook_summaries,
)
from gemmetry.domain.errors import RequestError
from gemmetry.formats.xlsx import Sheet, TraceLensReport, read_tracelens_report
from gemmetry.traces.gemms import Gemms, workload
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import summarize

DATA = Path(__file__).parents[1] / "data"
PAIRS = [
    (DATA / "tracelens_workbooks" / f"{name}.xlsx", DATA / "traces" / f"{name}.pt.trace.json.gz")
    for name in ("h200_matmul", "h200_fsdp_rank0of4_part")
]
both = pytest.mark.parametrize(("workbook", "trace"), PAIRS, ids=lambda path: path.name)


def trace_of(path):
    return Trace(path, read_trace(path, use_cache=False))


@both
def test_a_workbook_of_tracelens_has_the_same_times_as_the_trace(workbook, trace):
    (found,) = workbook_summaries(read_tracelens_report(workbook))
    expected = summarize(trace_of(trace))
    entry, wanted = found.record(), expected.record()
    assert tuple(entry) == tuple(wanted)
    assert entry["file"] == str(workbook)
    assert entry["events"] is entry["gemm_comm_overlap_us"] is None
    for key in wanted:
        if key.endswith("_us") and entry[key] is not None:
            # TraceLens adds up float64 numbers near 10¹² µs.
            assert float(entry[key]) == pytest.approx(float(wanted[key]), abs=0.05), key
        elif key.endswith("kernels"):
            assert entry[key] == wanted[key]
    assert [(g["name"], g["count"]) for g in entry["top_gemms"]] == [
        (g["name"], g["count"]) for g in wanted["top_gemms"]
    ]
    for found_gemm, gemm in zip(entry["top_gemms"], wanted["top_gemms"], strict=True):
        for key in ("sum_us", "min_us", "max_us"):
            assert float(found_gemm[key]) == pytest.approx(float(gemm[key]), abs=0.002)


@both
def test_its_gemms_are_those_of_the_trace_and_no_fill(workbook, trace):
    found = {row.kernel: row for row in workbook_gemms(read_tracelens_report(workbook))}
    expected = {row.kernel: row for row in Gemms([trace_of(trace)]).rows()}
    assert found.keys() == expected.keys()
    for kernel, row in found.items():
        other = expected[kernel]
        assert row.shape == other.shape
        assert (row.dtype, row.layout, row.count) == (other.dtype, other.layout, other.count)
        assert row.operators == other.operators
        assert row.median_ns == pytest.approx(other.median_ns, abs=2)
        assert row.tflops == pytest.approx(other.tflops, rel=1e-4)
        assert row.p5_ns is row.mad_ns is row.overlapped_ns is row.peak_fraction is None
    operations = [gemm.operation for gemm in workload(found.values()).gemms]
    assert operations == [gemm.operation for gemm in workload(expected.values()).gemms]
    assert all(operations)


def test_a_workbook_of_ours_of_several_traces(tmp_path):
    from gemmetry.documents.tracelens_workbooks import trace_workbook
    from gemmetry.traces.report import build_report

    traces = [trace_of(trace) for _, trace in PAIRS]
    path = tmp_path / "ours.xlsx"
    path.write_bytes(trace_workbook(build_report(iter(traces), {}, sheets=TraceLensSheets())))
    report = read_tracelens_report(path)
    for found, trace in zip(workbook_summaries(report), traces, strict=True):
        expected = summarize(trace)
        assert str(trace.file) in found.label
        assert found.source == f"{path}: {trace.file}"
        for name in ("window", "busy", "compute_union", "comm_union", "exposed_comm", "idle",
                     "gemm_kernel", "comm_kernel", "memcpy_union"):  # fmt: skip
            assert getattr(found, f"{name}_ns") == getattr(expected, f"{name}_ns"), name
        assert found.kernels == expected.kernels
        assert found.top_gemms == expected.top_gemms
    gemms = workbook_gemms(report)
    assert sum(row.sum_ns for row in gemms) == sum(row.sum_ns for row in Gemms(traces).rows())


def report(**sheets):
    return TraceLensReport(
        Path("r.xlsx"), {name: Sheet(columns) for name, columns in sheets.items()}
    )


TYPES = ["computation_time", "exposed_comm_time", "busy_time", "total_time", "total_comm_time",
         "total_memcpy_time"]  # fmt: skip


def timeline(*times):
    return {"type": list(TYPES), "time ms": list(times)}


def test_without_a_sheet_of_kernels_their_counts_are_not_known():
    (found,) = workbook_summaries(report(gpu_timeline=timeline(5, 1, 7, 10, 2, 0)))
    entry = found.record()
    assert entry["window_us"] == 10_000
    assert (entry["idle_us"], entry["comm_compute_overlap_us"]) == (3000, 1000)
    for key in ("kernels", "gemm_kernels", "gemm_kernel_us", "comm_kernel_us", "top_gemms"):
        assert entry[key] is None


@pytest.mark.parametrize(
    ("times", "message"),
    [
        *(((5, 1, bad, 10, 2, 0), "busy_time")
          for bad in (None, "x", float("inf"), -1, 1e300, True)),
        ((5, 1, 11, 10, 2, 0), "contradict each other"),
        ((5, 3, 9, 10, 2, 0), "contradict each other"),
    ],
)  # fmt: skip
def test_invalid_times_are_refused(times, message):
    with pytest.raises(RequestError, match=message) as raised:
        workbook_summaries(report(gpu_timeline=timeline(*times)))
    assert "r.xlsx" in str(raised.value)


def test_sheets_that_are_missing_are_named():
    with pytest.raises(RequestError, match="no sheet 'gpu_timeline'"):
        workbook_summaries(report())
    with pytest.raises(RequestError, match="no sheet 'GEMM'"):
        workbook_gemms(report())
    with pytest.raises(RequestError, match="no column 'param: M'"):
        workbook_gemms(report(GEMM={"name": ["x"]}))


ONE = (
    "{'name': 'my_gemm', 'stream': 7, 'count': 2, 'total_duration_us': np.float64(6.0), "
    "'mean_duration_us': np.float64(3.0), 'median_duration_us': 3.0, 'min_duration_us': 2.5, "
    "'max_duration_us': np.float64(3.5)}"
)


def gemm(details, **cells):
    columns = {
        "name": "aten::mm", "param: M": 16, "param: N": 32, "param: K": 64, "name_count": 2,
        "kernel_details__summarize_kernel_stats": details, **cells,
    }  # fmt: skip
    return workbook_gemms(report(GEMM={name: [cell] for name, cell in columns.items()}))


def test_several_kernels_of_a_call_share_its_flops():
    other = ONE.replace("my_gemm", "other_gemm")
    rows = gemm(f"[{{'name': 'Memset (Device)', 'count': 2}}, {ONE}, {other}]")
    assert [row.kernel for row in rows] == ["my_gemm", "other_gemm"]
    assert all(row.tflops is None for row in rows)


@pytest.mark.parametrize(
    "cell", [None, "", "x", 5, "[{'name': 'k'}]", "[" * 5000, "{'name': '" + "\\" * 9000, ONE[:-40]]
)
def test_a_list_of_kernels_that_cannot_be_read_gives_no_row(cell):
    assert gemm(cell) == []


@given(st.text(alphabet="{}'\"\\[], :0123456789.enamcoutp()fl", max_size=200))
@settings(deadline=None, max_examples=100)
def test_any_text_is_taken_for_a_list_of_kernels(text):
    for row in gemm(f"[{text}{ONE}]"):
        assert row.count > 0
        assert row.sum_ns >= 0


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=10)
)


@given(st.lists(CELLS, min_size=6, max_size=6), st.lists(CELLS, min_size=5, max_size=5))
@settings(deadline=None, max_examples=200)
def test_any_cells_give_a_summary_or_a_reason(times, kernel):
    names = ("Kernel name", *(f"Kernel duration (µs)_{x}" for x in ("count", "sum", "min", "max")))
    sheet = {name: [cell, "gemm"] for name, cell in zip(names, kernel, strict=True)}
    try:
        found = workbook_summaries(report(gpu_timeline=timeline(*times), kernel_summary=sheet))
    except RequestError:
        found = workbook_summaries(
            report(gpu_timeline=timeline(5, 1, 7, 10, 2, 0), kernel_summary=sheet)
        )
    for one in found:
        assert 0 <= one.idle_ns <= one.window_ns
        assert 0 <= one.gemm_kernel_ns < 2**62


@given(*(CELLS for _ in range(8)))
@settings(deadline=None, max_examples=200)
def test_any_cells_of_a_gemm_give_rows_or_none(m, n, k, b, dims, types, strides, count):
    rows = gemm(
        f"[{ONE}]", **{"param: M": m, "param: N": n, "param: K": k, "param: B": b,
        "Input Dims_first": dims, "Input type_first": types, "Input Strides_first": strides,
        "name_count": count},
    )  # fmt: skip
    assert len(rows) == 1
    workload(rows)
