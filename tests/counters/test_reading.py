from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters import collector
from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.ncu_report import MAGIC

DATA = Path(__file__).parent.parent / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"


def test_the_raw_page_of_a_full_report():
    table = read_counters(RAW)
    (launch,) = table
    info = launch.info
    assert (info.device, info.grid, info.cluster) == ("NVIDIA H200", (2, 66, 1), (2, 1, 1))
    assert (launch.duration_ns, launch.unit("gpu__time_duration.sum")) == (180_992, "ns")
    assert launch.value("sm__ops_path_tensor_src_bf16_dst_fp32.sum") == 2 * 4096**3
    assert launch.value("dram__cycles_elapsed.avg.per_second") == pytest.approx(3.2e9, rel=1e-3)
    assert launch.value("sass__inst_executed_register_spilling_mem_local") is None
    assert launch.text("launch__cluster_scheduling_policy") == "PolicySpread"
    assert table.problems == []
    (launch,) = read_counters(RAW, ["gpu__time_duration.sum"])
    assert launch.metrics() == {"gpu__time_duration.sum": 180_992}


PRINTED = """\
==PROF== Connected
  k (1, 1, 1)x(256, 1, 1), Context 1
    Section: GPU Speed Of Light Throughput
    ------- ----- -----
    Metric Name       Metric Unit Metric Value
    ------- ----- -----
    Elapsed Cycles          cycle      1187722
"""


@pytest.mark.parametrize(
    ("content", "name", "hint"),
    [*[(text, "a", "")
       for text in ("", "{}", "[]", '{"traceEvents": []}', "PK\x03\x04", "\0" * 99)],
     (PRINTED, "a.txt", "--csv"), (PRINTED, "a.txt", "for people"), ("a,b\n1,2\n", "a.csv", ""),
     ("a,b\n1,2\n", "a.ncu-rep", "named like one")],
)  # fmt: skip
def test_what_is_no_report_is_refused(content, name, hint, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match="no hardware counters of kernels") as error:
        read_counters(tmp_path / name)
    assert hint in error.value.hint
    (tmp_path / name).unlink()
    with pytest.raises(RequestError, match="no hardware counters of kernels"):
        read_counters(tmp_path)
    with pytest.raises(RequestError, match="cannot be read"):
        read_counters(tmp_path / name)


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(MAGIC + b"x")
    return file


def test_a_report_is_exported_where_the_library_is_missing(report, monkeypatch):
    monkeypatch.setattr(collector, "report_library", lambda ncu: None)
    monkeypatch.setattr(collector, "tool_path", lambda name: name)
    monkeypatch.setattr(collector, "read_by_export", lambda *arguments: arguments)
    assert read_counters(report, ["a"]) == (report, Path("ncu"), ["a"])


@pytest.mark.parametrize("has_library", [False, True])
def test_a_report_that_nothing_reads_and_the_csv_next_to_it(
    report, ncu_report, monkeypatch, has_library
):
    """The library is missing, or finds no launches."""
    library = ncu_report.library() if has_library else None
    why = "no launches that ncu_report" if has_library else "nothing here reads it"
    monkeypatch.setattr(collector, "report_library", lambda ncu: library)
    monkeypatch.setattr(collector, "tool_path", lambda name: None)
    with pytest.raises(RequestError, match=why) as error:
        read_counters(report)
    assert has_library or "gemmetry[counters]" in error.value.hint
    report.with_suffix(".csv").write_text('"ID","Kernel Name","a"\n"","",""\n"0","k","5"\n')
    for path in (report, report.parent):
        table = read_counters(path)
        assert table[0].metrics() == {"a": 5}
        assert why in table.problems[-1] and "a.csv" in table.problems[-1]


def test_a_report_or_its_folder_is_read_by_the_library_if_there_is_one(
    report, ncu_report, monkeypatch
):
    launch = ncu_report.Action("k", {"a": ncu_report.Metric(1)})
    monkeypatch.setattr(collector, "report_library", lambda ncu: ncu_report.library([launch]))
    monkeypatch.setattr(collector, "read_by_export", lambda *_: pytest.fail("not needed"))
    for place in (report, report.parent):
        assert read_counters(place)[0].metrics() == {"a": 1}
    report.with_name("b.ncu-rep").write_bytes(MAGIC)
    with pytest.raises(RequestError, match="2 reports") as error:
        read_counters(report.parent)
    assert "a.ncu-rep, b.ncu-rep" in error.value.hint
