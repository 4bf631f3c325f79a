from __future__ import annotations

import csv
import dataclasses
import io

import pytest

from gemmetry.dispatches.results import record_table
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.errors import Outcome, RequestError, StorageError
from gemmetry.results.tables import append_csv, cell_text, csv_text

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def _rows(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_column_and_record_is_there(result_set):
    rows = _rows(csv_text(record_table(result_set.records)))
    assert len(rows) == len(result_set.records)
    assert list(rows[0]) == ["note", *(c.name for c in COLUMNS if c.name != "tags")]
    first = result_set.records[0]
    assert float(rows[0]["median_ns"]) == first.measurement.median_ns
    assert rows[0]["verification"] == "passed"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_texts_that_a_spreadsheet_would_evaluate_are_disarmed(make_record, start):
    text = f'{start}HYPERLINK("http://x")'
    record = make_record(NAME, outcome=Outcome.WRONG, reason=text, tags={f"{start}tag": text})
    rows = _rows(csv_text(record_table([record], ["reason"])))
    heading, cell = (f"'{t}".replace("\r", "\n") for t in (f"{start}tag", text))
    assert rows == [{heading: cell, "reason": cell}]


@pytest.mark.parametrize(
    "text", [" =1+1", "\n=1+1", "\x00=1+1", "\x1b=1+1", "\ufeff@x", "\u200b+1", "＝1", "＠x", "\n"]
)
def test_a_sign_behind_what_a_spreadsheet_may_drop_is_disarmed(make_record, text):
    record = make_record(NAME, outcome=Outcome.WRONG, reason=text)
    (row,) = _rows(csv_text(record_table([record], ["reason"])))
    assert row["reason"].startswith("'")


@pytest.mark.parametrize("text", ["a=b", "1-1", "a\x1b[31mb", "\ud800x", "aten::mm"])
def test_other_texts_have_no_apostrophe_and_no_control_characters(make_record, text):
    record = make_record(NAME, outcome=Outcome.WRONG, reason=text)
    (row,) = _rows(csv_text(record_table([record], ["reason"])))
    expected = text.replace("\x1b", "\ufffd").replace("\ud800", "\ufffd")
    assert row["reason"] == expected


def test_negative_numbers_are_not_touched(make_record):
    record = make_record(NAME)
    assert record.verdict.signed_bias < 0
    rows = _rows(csv_text(record_table([record], ["signed_bias"])))
    assert float(rows[0]["signed_bias"]) == record.verdict.signed_bias


def test_line_breaks_and_quotes_survive(make_record):
    record = make_record(NAME, outcome=Outcome.WRONG, reason='a "b", c\nd')
    rows = _rows(csv_text(record_table([record], ["reason"])))
    assert rows[0]["reason"] == 'a "b", c\nd'


def test_appending_continues_the_table(result_set, tmp_path):
    path = tmp_path / "data.csv"
    half = len(result_set.records) // 2
    tagged = [dataclasses.replace(r, tags={"run": "1"}) for r in result_set.records]
    first, second = record_table(tagged[:half]), record_table(tagged[half:])
    path.write_text(append_csv(first, path), encoding="utf-8", newline="")
    path.write_text(append_csv(second, path), encoding="utf-8", newline="")
    whole = csv_text(record_table(tagged))
    assert path.read_text(encoding="utf-8") == whole


def test_appending_mends_a_missing_last_line_end(make_record, tmp_path):
    path = tmp_path / "data.csv"
    records = [make_record(NAME)]
    path.write_text(csv_text(record_table(records, ["provider"])).rstrip("\n"), encoding="utf-8")
    assert append_csv(record_table(records, ["provider"]), path) == "provider\ntorch\ntorch\n"


def test_appending_to_an_empty_file_writes_the_header(make_record, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("")
    records = [make_record(NAME)]
    assert append_csv(record_table(records, ["provider"]), path) == "provider\ntorch\n"


def test_a_file_that_cannot_be_read_is_not_appended_to(make_record, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"provider\n\xff\n")
    records = [make_record(NAME)]
    with pytest.raises(StorageError, match=r"to append to it: it is not UTF-8 text \(byte 10\)"):
        append_csv(record_table(records, ["provider"]), path)


def test_appending_to_other_columns_is_refused_with_the_difference(make_record, tmp_path):
    path = tmp_path / "data.csv"
    records = [make_record(NAME)]
    path.write_text(csv_text(record_table(records, ["provider", "seed"])))
    with pytest.raises(RequestError, match="it lacks target; it also has seed"):
        append_csv(record_table(records, ["provider", "target"]), path)
    with pytest.raises(RequestError, match="their order"):
        append_csv(record_table(records, ["seed", "provider"]), path)


def test_appending_to_what_is_not_text_is_refused(make_record, tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StorageError, match="cannot read"):
        append_csv(record_table([make_record(NAME)]), path)


def test_cells_hold_one_value():
    assert cell_text(["a", "b"]) == "a; b"
    assert cell_text({"a": 1, "b": "c"}) == "a=1; b=c"
    assert cell_text(1.5) == 1.5
    assert cell_text(None) is None
    assert (cell_text(True), cell_text(False)) == ("yes", "no")
