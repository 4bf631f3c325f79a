"""Reports of TraceLens given to the commands that read traces."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from gemmetry.formats import xlsx

xlsxwriter = pytest.importorskip("xlsxwriter")

DATA = Path(__file__).parents[2] / "data"
MATMUL = str(DATA / "tracelens_workbooks" / "h200_matmul.xlsx")
RANK0 = str(DATA / "tracelens_workbooks" / "h200_fsdp_rank0of4_part.xlsx")
TRACE = str(DATA / "traces" / "h200_matmul.pt.trace.json.gz")
GRID = str(DATA / "cpu_grid")


def test_summary_of_a_workbook(cli):
    ended = cli("trace", "summary", MATMUL)
    assert ended.status == 0
    assert "2 kernels in 0.144 ms\n" in ended.stdout
    assert "overlapping GEMMs" not in ended.stdout
    assert "sum of 2 GEMM kernels" in ended.stdout


def test_workbooks_and_traces_are_in_the_order_given(cli):
    files = (RANK0, TRACE, MATMUL)
    document = json.loads(cli("trace", "summary", *files, "--json", "--no-cache").stdout)
    assert [entry["file"] for entry in document["files"]] == list(files)
    assert [entry["events"] for entry in document["files"]] == [None, 79, None]
    reported = cli("trace", "summary", *files, "--no-cache").stdout
    assert "h200_fsdp_rank0of4_part.xlsx " in reported


def test_traces_of_one_workbook_are_distinguished(cli):
    pair = [DATA / "traces" / f"h200_fsdp_rank{rank}of4_part.pt.trace.json.gz" for rank in (0, 1)]
    assert cli("trace", "report", *map(str, pair), "--no-cache", "-o", "both.xlsx").status == 0
    reported = cli("trace", "summary", "both.xlsx").stdout
    files = [
        f["file"]
        for f in json.loads(cli("trace", "summary", "both.xlsx", "--json").stdout)["files"]
    ]
    assert files == [f"both.xlsx: {path}" for path in pair]
    assert (
        reported.count("h200_fsdp_rank0of4_part.pt")
        == reported.count("h200_fsdp_rank1of4_part.pt")
        == 1
    )
    assert "both.xlsx" in cli("trace", "summary", "both.xlsx", MATMUL).stdout


def test_gemms_and_shapes_of_a_workbook(cli):
    ended = cli("trace", "gemms", RANK0)
    assert "16384x16384x4096 bf16 tn  aten::addmm" in ended.stdout
    rows = json.loads(cli("trace", "gemms", RANK0, TRACE, "--json", "--no-cache").stdout)["gemms"]
    assert [row["m"] for row in rows] == [16384, 16384, 16384, 16384, 2048]
    assert rows[0]["mad_us"] is rows[0]["p95_us"] is rows[0]["overlapped_share"] is None
    assert rows[-1]["mad_us"] is not None
    ended = cli("trace", "shapes", RANK0, "-o", "shapes.yaml")
    assert ended.status == 0
    planned = cli("profile", "--spec", "shapes.yaml", "--providers", "null", "--dry-run")
    assert planned.status == 0, planned.stderr
    assert "matmul_16384x4096x16384_bf16t_bf16n_bf16t" in planned.stdout


def test_times_of_a_host_are_not_added_to_those_of_a_workbook(cli):
    both = cli("trace", "shapes", MATMUL, GRID, "--json", "--no-cache")
    assert both.status == 0, both.stderr
    alone = cli("trace", "shapes", MATMUL, "--json")
    assert json.loads(both.stdout)["shapes"] == json.loads(alone.stdout)["shapes"] != []
    assert "no work on a GPU; `gemmetry trace report" in both.stderr
    assert json.loads(cli("trace", "shapes", GRID, "--json", "--no-cache").stdout)["shapes"] != []


@pytest.mark.parametrize("command", ["summary", "gemms", "shapes"])
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "xlsx", "md", "html"])
def test_tables_as_files(cli, command, suffix):
    ended = cli("trace", command, MATMUL, "-o", f"out.{suffix}")
    assert ended.status == 0, ended.stderr
    assert Path(f"out.{suffix}").stat().st_size > 0


@pytest.mark.parametrize("words", [("collectives",), ("report", "-o", "r.xlsx")])
def test_commands_that_need_the_trace_itself_state_so(cli, words):
    ended = cli("trace", *words, MATMUL)
    assert ended.status == 2
    assert f"error: {MATMUL} is not a trace: it is a workbook" in ended.stderr
    assert "Only gemmetry trace summary, gemms and shapes read workbooks" in ended.stderr


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
        (make, command)
        for make in _BAD
        for command in ("summary", "gemms", "shapes")
        # The sheet that is broken is the summary's.
        if make is not _broken_sheet or command == "summary"
    ],
)
def test_a_workbook_that_cannot_be_read(cli, command, make, monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_UNPACKED_BYTES", 4 << 20)
    make(Path("bad.xlsx"))
    ended = cli("trace", command, "bad.xlsx")
    assert ended.status == 2, ended.stderr
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "bad.xlsx" in error
    assert re.search(_BAD[make], error)
    assert "hint: " in ended.stderr
    ended = cli("trace", command, "bad.xlsx", MATMUL)
    assert ended.status == 1
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
        ended = cli("trace", command, "h.xlsx", *outputs)
        assert ended.status == 0, ended.stderr
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
