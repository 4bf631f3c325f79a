"""Reports of TraceLens given to the commands that read traces."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

xlsxwriter = pytest.importorskip("xlsxwriter")

DATA = Path(__file__).parents[2] / "data"
MATMUL = str(DATA / "tracelens_workbooks" / "h200_matmul.xlsx")


def _cut(path):
    path.write_bytes(Path(MATMUL).read_bytes()[:-3000])


def _foreign(path):
    with xlsxwriter.Workbook(path) as book:
        book.add_worksheet("mine").write(0, 0, "x")


def _without_columns(path):
    with xlsxwriter.Workbook(path) as book:
        for name in ("gpu_timeline", "GEMM"):
            book.add_worksheet(name).write(0, 0, "name")


@pytest.mark.parametrize(
    ("make", "reported", "command"),
    [
        (_cut, "cannot be read as a workbook", "summary"),
        *((make, reported, command) for command in ("summary", "gemms", "shapes")
          for make, reported in ((_foreign, "has none of the sheets that TraceLens writes"),
                                 (_without_columns, "has no column"))),
    ],
)  # fmt: skip
def test_a_workbook_that_cannot_be_read(cli, make, reported, command):
    make(Path("bad.xlsx"))
    ended = cli("trace", command, "bad.xlsx", status=2)
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "bad.xlsx" in error and re.search(reported, error)
    assert "hint: " in ended.stderr
    assert "error: " in cli("trace", command, "bad.xlsx", MATMUL, status=1).stderr


def test_hostile_cells_are_shown_and_do_nothing(cli):
    hostile = '=HYPERLINK("http://x")<script>alert(1)</script>\x1b[31m[/]_gemm'
    details = (
        f"[{{'name': {hostile!r}, 'stream': 7, 'count': 2, 'total_duration_us': 5, "
        "'median_duration_us': 2, 'min_duration_us': 1, 'max_duration_us': 4}]"
    )
    sheets = {
        "gpu_timeline": [("type", "time ms"), *((f"{what}_time", 2) for what in (
            "computation", "exposed_comm", "busy", "total", "total_comm", "total_memcpy"))],
        "kernel_summary": [("Kernel name", *(f"Kernel duration (µs)_{what}" for what in (
            "count", "sum", "min", "max"))), (hostile, 2, 5, 1, 4)],
        "GEMM": [("name", "param: M", "param: N", "param: K",
                  "kernel_details__summarize_kernel_stats"), (hostile, 16, 16, 16, details)],
    }  # fmt: skip
    with xlsxwriter.Workbook("h.xlsx", {"strings_to_formulas": False}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    for command in ("summary", "gemms", "shapes"):
        ended = cli("trace", command, "h.xlsx", "-o", "o.csv,o.md,o.html,o.xlsx", status=0)
        assert "\x1b" not in ended.stdout
        assert "<script>" not in Path("o.html").read_text() + Path("o.md").read_text()
        assert not re.search('^=|,"=', Path("o.csv").read_text(), re.MULTILINE)
        with zipfile.ZipFile("o.xlsx") as book:
            assert not any(b"<f>" in book.read(part) for part in book.namelist())


def test_the_content_decides_what_a_file_is(cli):
    shutil.copy(MATMUL, "report.json")
    assert "0.144 ms" in cli("trace", "summary", "report.json").stdout
