from __future__ import annotations

import gzip

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.ncu_pages import read_ncu_csv

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
    assert table.tool == "ncu"
    assert table.source == file
    assert [one.metrics() for one in table] == [{"a": 1500500}]
    assert table.problems == []


def test_it_may_be_compressed_or_written_by_powershell(tmp_path):
    packed, wide = tmp_path / "a.csv.gz", tmp_path / "b.csv"
    packed.write_bytes(gzip.compress(RAW.encode()))
    wide.write_text(RAW, encoding="utf-16")
    assert read_ncu_csv(packed)[0].metrics() == read_ncu_csv(wide)[0].metrics() == {"a": 1500500}


def test_a_damaged_file_keeps_the_rows_before_the_damage(tmp_path):
    file = tmp_path / "a.csv.gz"
    rows = "".join(f'"{i}","1","k","{i * i}"\n' for i in range(5000))
    file.write_bytes(gzip.compress((RAW + rows).encode())[:-10_000])
    table = read_ncu_csv(file)
    assert 100 < len(table) < 5001
    assert "cut short" in table.problems[-1]


def test_a_kernels_name_may_have_line_breaks_and_a_cut_row_takes_no_other_with_it(tmp_path):
    file = tmp_path / "a.csv"
    rows = '"0","1","a\nb""c\n","7"\n"1","1","cut\n"2","1","d","8"\n"3","1","\nalso cut'
    file.write_text(RAW.rpartition('"0"')[0] + rows)
    table = read_ncu_csv(file)
    assert [(one.name, one.metrics()) for one in table] == [
        ('a\nb"c\n', {"a": 7000}), ("d", {"a": 8000}),
    ]  # fmt: skip
    assert ["line 6" in table.problems[0], "line 8" in table.problems[1]] == [True, True]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", NOISE])
def test_another_file_is_none(tmp_path, text):
    file = tmp_path / "a.csv"
    file.write_text(text)
    assert read_ncu_csv(file) is None


def test_a_file_that_is_cut_before_its_table_is_no_file_without_counters(tmp_path):
    file = tmp_path / "a.csv.gz"
    wide = ",".join(f'"metric_{i * 7919 % 10007}"' for i in range(5000))
    file.write_bytes(gzip.compress(f'"ID","Kernel Name",{wide}\n'.encode())[:1000])
    with pytest.raises(RequestError, match=r"cannot be read beyond line 0: .*cut short"):
        read_ncu_csv(file)


def test_a_table_without_rows_has_no_launches(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(RAW.splitlines()[0])
    assert len(read_ncu_csv(file)) == 0


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
