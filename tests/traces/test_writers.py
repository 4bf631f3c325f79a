from __future__ import annotations

import csv

import pytest

from gemmetry.documents.tracelens_workbooks import SUFFIXES, check_reports, write_report
from gemmetry.domain.errors import RequestError, StorageError


def test_every_suffix_makes_a_file(job_report, tmp_path):
    paths = [tmp_path / f"r{suffix}" for suffix in SUFFIXES]
    check_reports(paths)
    for path in paths:
        write_report(job_report, path)
        assert path.stat().st_size > 400


def test_a_folder_gets_a_csv_of_each_sheet(hostile_report, tmp_path):
    folder = tmp_path / "sheets"
    check_reports([folder])
    write_report(hostile_report, folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{table.name}.csv" for table in hostile_report.tables}
    with (folder / "kernel_summary.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # A spreadsheet must not take a name for a formula.
    assert all(not row["Kernel name"].startswith(("=", "-", "+", "@")) for row in rows)
    assert len(rows) == len(hostile_report.table("kernel_summary").rows)


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path):
    with pytest.raises(RequestError, match="unknown suffix") as caught:
        check_reports([tmp_path / "r.csv"])
    assert "folder" in caught.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        check_reports([tmp_path / "file" / "r.html"])
