"""CSV files of Nsight Compute; small pages are in ``test_golden``."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.ncu_pages import _labels, read_ncu_csv

DATA = Path(__file__).parents[2] / "data"
DETAILS = DATA / "counters" / "h200_cublas_bf16_4096_details.csv.gz"
RAW_PAGE = DATA / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
BLACKWELL = DATA / "counters" / "b200_cublaslt_fp8_details.csv.gz"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")

RAW = (
    '"ID","Process ID","Kernel Name","a"\n'
    '"","","","us"\n'
    '"0","1","k","1,500.5"\n'
)  # fmt: skip
NOISE = '==PROF== Connected to process 1 (app)\n2208  2048\n"quoted, ID output"\n'


@pytest.mark.parametrize("before", ["", NOISE, "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_table_is_found_among_other_output(tmp_path, before, newline):
    file = tmp_path / "a.csv"
    text = before + RAW + "==PROF== Disconnected from process 1\n"
    file.write_text(text, encoding="utf-8", newline=newline)
    table = read_ncu_csv(file)
    assert (table.tool, table.source, table.problems) == ("ncu", file, [])
    assert [one.metrics() for one in table] == [{"a": 1500500}]
    # It may be compressed, or written by PowerShell.
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert read_ncu_csv(file)[0].metrics() == {"a": 1500500}
    file.write_text(RAW, encoding="utf-16")
    assert read_ncu_csv(file)[0].metrics() == {"a": 1500500}


def test_a_damaged_file_keeps_the_rows_before_the_damage(tmp_path):
    file = tmp_path / "a.csv.gz"
    rows = "".join(f'"{i}","1","k","{i * i:,}"\n' for i in range(5000))
    file.write_bytes(gzip.compress((RAW.rpartition('"0"')[0] + rows).encode())[:-10_000])
    table = read_ncu_csv(file)
    assert 1000 < len(table) < 5000
    assert np.array_equal(table.values["a"], np.arange(float(len(table))) ** 2 * 1000)
    assert "cut short" in table.problems[-1]


def test_a_file_that_is_cut_before_its_table_is_no_file_without_counters(tmp_path):
    file = tmp_path / "a.csv.gz"
    wide = ",".join(f'"metric_{i * 7919 % 10007}"' for i in range(5000))
    file.write_bytes(gzip.compress(f'"ID","Kernel Name",{wide}\n'.encode())[:1000])
    with pytest.raises(RequestError, match=r"cannot be read beyond line 0: .*cut short"):
        read_ncu_csv(file)


HEAD = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
TWO_LAUNCHES = {
    "raw": '"ID","Process ID","Kernel Name","a","b"\n"","","","us","Kbyte"\n'
    '"0","1","k","1,500.5","12"\n"1","1","k","7.25","123,456"\n',
    "details": f'{HEAD},"Rule Name"\n'
    '"0","1","k","S","a__x","us","1,500.5",\n"0","1","k","S","b__x","byte","12",\n'
    '"1","1","k","S","a__x","ms","7.25",\n"1","1","k","S","b__x","Kbyte","123,456",\n',
}


@pytest.mark.parametrize("page", list(TWO_LAUNCHES))
def test_a_file_that_is_cut_anywhere_has_no_wrong_values(page, tmp_path):
    whole = TWO_LAUNCHES[page]
    file = tmp_path / "a.csv"
    file.write_text(whole)
    expected = [one.metrics() for one in read_ncu_csv(file)]
    assert [len(one) for one in expected] == [2, 2]
    for length in range(len(whole)):
        file.write_text(whole[:length])
        table = read_ncu_csv(file)
        for number, one in enumerate(table or ()):
            assert one.metrics().items() <= expected[number].items(), whole[:length]


def test_another_capture_of_the_launch_of_the_raw_page():
    """A second capture differs by a few per cent; a wrong unit or a wrong metric by more."""
    details, raw = read_counters(DETAILS)[0], read_counters(RAW_PAGE)[0]
    assert (details.name, details.info.grid) == (raw.name, raw.info.grid)
    numbers = details.metrics()
    mapped = {name: value for name, value in numbers.items() if "/" not in name}
    assert len(mapped) >= 36
    assert len(numbers) - len(mapped) <= 1
    for name, value in mapped.items():
        expected = raw.value(name)
        assert value == pytest.approx(expected, rel=0.03, abs=0.006), name
        assert details.unit(name) == raw.unit(name) or {details.unit(name), raw.unit(name)} == {
            "%",
            "",
        }
    assert [one.identifier for one in details.info.rules].count("CPIStall") == 3
    local = {one.identifier: one.speedup_percent for one in details.info.rules if one.speedup_kind}
    assert local == {"CPIStall": 30.71, "TheoreticalOccupancy": 81.25}


def test_every_label_is_that_of_a_metric_in_a_real_report():
    library = pytest.importorskip("ncu_report")
    file = LARGER / "counters_h200" / "cublas_bf16_4096.ncu-rep"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in {LARGER} (GEMMETRY_TRACES names another folder)")
    action = library.load_report(str(file)).range_by_idx(0).action_by_idx(0)
    if not hasattr(action, "sections"):
        pytest.skip("this version of ncu_report does not list sections")
    found = {(section.name(), one.label()): one.name() for section in action.sections()
             for one in (*section.header_metrics(), *section.body_metrics())}  # fmt: skip
    shared = set(found) & set(_labels())
    assert len(shared) > 80
    assert {key: found[key] for key in shared} == {key: _labels()[key] for key in shared}


def test_a_report_of_a_blackwell_gpu_after_output_of_the_application():
    table = read_counters(BLACKWELL)
    assert [one.info.capability for one in table] == ["10.0"]
    assert table[0].duration_ns == 406_240
    assert table[0].value("launch__sm_count") == 152
    assert [name for name in table.values if "/" in name] == []
    assert (len(table.infos[0].rules), table.problems) == (8, [])
