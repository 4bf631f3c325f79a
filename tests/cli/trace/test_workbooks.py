"""Reports of TraceLens given to the commands that read traces."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from gemmetry.formats import xlsx

xlsxwriter = pytest.importorskip("xlsxwriter")

DATA = Path(__file__).parents[2] / "data"
MATMUL = str(DATA / "tracelens_workbooks" / "h200_matmul.xlsx")


def _cut(path):
    path.write_bytes(Path(MATMUL).read_bytes()[:-3000])


def _broken_sheet(path):
    """The archive is whole, but a sheet in it is not XML."""
    with zipfile.ZipFile(MATMUL) as old, zipfile.ZipFile(path, "w") as new:
        for part in old.namelist():
            new.writestr(part, b"<x" if "sheet1" in part else old.read(part))


def _bomb(path):
    with zipfile.ZipFile(MATMUL) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.namelist():
            new.writestr(part, old.read(part))
        with new.open("xl/sharedStrings.xml", "w", force_zip64=True) as part:
            part.write(bytes(5 << 20))


def _foreign(path):
    with xlsxwriter.Workbook(path) as book:
        book.add_worksheet("mine").write(0, 0, "x")


def _without_columns(path):
    with xlsxwriter.Workbook(path) as book:
        for name in ("gpu_timeline", "GEMM"):
            book.add_worksheet(name).write(0, 0, "name")


def _garbage(path):
    path.write_bytes(b"PK\x03\x04" + b"\xff" * 500)


_BAD = {
    _cut: "cannot be read as a workbook",
    _broken_sheet: "cannot be read as a workbook|no column",
    _bomb: "xl/sharedStrings.xml has more than 4 MiB",
    _foreign: "has none of the sheets that TraceLens writes",
    _without_columns: "has no column",
    _garbage: "cannot be read as",
}
"""How a workbook is damaged -> what is reported."""


@pytest.mark.parametrize(
    ("make", "command"),
    [
        (_cut, "summary"),
        (_broken_sheet, "summary"),  # The sheet that is broken is the summary's.
        (_bomb, "gemms"),
        (_garbage, "shapes"),
        *((make, command) for make in (_foreign, _without_columns)
          for command in ("summary", "gemms", "shapes")),
    ],
)  # fmt: skip
def test_a_workbook_that_cannot_be_read(cli, command, make, monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_UNPACKED_BYTES", 4 << 20)
    make(Path("bad.xlsx"))
    ended = cli("trace", command, "bad.xlsx", status=2)
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "bad.xlsx" in error
    assert re.search(_BAD[make], error)
    assert "hint: " in ended.stderr
    ended = cli("trace", command, "bad.xlsx", MATMUL, status=1)
    assert "error: " in ended.stderr


def test_hostile_cells_are_shown_and_do_nothing(cli):
    hostile = '=HYPERLINK("http://x")<script>alert(1)</script>\x1b[31m[/]_gemm'
    with xlsxwriter.Workbook("h.xlsx", {"strings_to_formulas": False}) as book:
        sheet = book.add_worksheet("gpu_timeline")
        for number, row in enumerate([
            ("type", "time ms"), ("computation_time", 5), ("exposed_comm_time", 1),
            ("busy_time", 7), ("total_time", 10), ("total_comm_time", 2), ("total_memcpy_time", 0),
        ]):  # fmt: skip
            sheet.write_row(number, 0, row)
        sheet = book.add_worksheet("kernel_summary")
        spent = "Kernel duration (µs)_"
        columns = (f"{spent}{what}" for what in ("count", "sum", "min", "max"))
        sheet.write_row(0, 0, ["Kernel name", *columns])
        sheet.write_row(1, 0, [hostile, 2, 5, 1, 4])
        sheet = book.add_worksheet("GEMM")
        details = (
            f"[{{'name': {hostile!r}, 'stream': 7, 'count': 2, 'total_duration_us': 5, "
            "'median_duration_us': 2, 'min_duration_us': 1, 'max_duration_us': 4}]"
        )
        sheet.write_row(0, 0, ["name", "param: M", "param: N", "param: K",
                               "kernel_details__summarize_kernel_stats"])  # fmt: skip
        sheet.write_row(1, 0, [hostile, 16, 16, 16, details])
    for command in ("summary", "gemms", "shapes"):
        outputs = [word for s in ("csv", "md", "html", "xlsx") for word in ("-o", f"o.{s}")]
        ended = cli("trace", command, "h.xlsx", *outputs, status=0)
        assert "\x1b" not in ended.stdout
        assert "<script>" not in Path("o.html").read_text() + Path("o.md").read_text()
        assert not any(
            line.startswith("=") or ',"=' in line for line in Path("o.csv").read_text().splitlines()
        )
        with zipfile.ZipFile("o.xlsx") as book:
            assert not any(b"<f>" in book.read(part) for part in book.namelist())


def test_the_content_decides_what_a_file_is(cli):
    shutil.copy(MATMUL, "report.json")
    assert "0.144 ms" in cli("trace", "summary", "report.json").stdout
