"""Reports of traces as files; the suffix picks the format.

A report of traces as an Excel workbook: its sheets, then notes and the meanings of columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, Table
from gemmetry.results.emit import check_writable, is_folder, write_atomically, written_together
from gemmetry.results.tables import Look, check_installed, left_out, workbook
from gemmetry.traces import TRACE_SCHEMA_VERSION
from gemmetry.traces.report import TraceReport

SUFFIXES = (".xlsx", ".html", ".json", ".md")


def check_reports(paths: Iterable[Path]) -> None:
    """Check, before any work, that the reports can be written.

    Raises:
        RequestError: a suffix is unknown, or a library is missing. StorageError: not writable.
    """
    for path in paths:
        if is_folder(path):
            check_writable(path / "gpu_timeline.csv")
            continue
        if path.suffix.lower() not in SUFFIXES:
            raise RequestError(
                f"unknown format of {path}: unknown suffix {path.suffix!r}",
                hint=f"Give a name that ends in one of {', '.join(SUFFIXES)}, or a folder "
                "for one CSV file per sheet.",
            )
        if path.suffix.lower() == ".xlsx":
            check_installed("xlsxwriter", extra="analysis")
        check_writable(path)


def write_report(report: TraceReport, path: Path, *, command: str = "") -> None:
    """Write `report`, whole or not at all; a folder gets a CSV file of each sheet.

    An HTML page shows `command`, as it was typed.

    Raises:
        RequestError: a library is missing. StorageError: not writable.
    """
    if is_folder(path):
        from gemmetry.results.tables import csv_lines

        with written_together():
            for table in report.tables:
                rows = ([str(v) if isinstance(v, bool) else v for v in row] for row in table.rows)
                text = csv_lines([table.names, *rows])
                write_atomically(path / f"{table.name}.csv", text.encode("utf-8", "replace"))
        return
    match path.suffix.lower():
        case ".xlsx":
            content = trace_workbook(report)
        case ".html":
            from gemmetry.traces.page import trace_page

            created = datetime.now(UTC).isoformat(timespec="seconds")
            page = trace_page(report, command=command, created=created)
            content = page.encode("utf-8", "replace")
        case ".md":
            from gemmetry.traces.markdown import trace_markdown

            content = trace_markdown(report).encode("utf-8", "replace")
        case _:
            content = report_json(report)
    write_atomically(path, content)


def report_json(report: TraceReport) -> bytes:
    """One JSON document: ``sheets`` with a list of rows each, ``notes`` and ``errors``."""
    from gemmetry.results.json_text import encoded

    return encoded(
        {
            "schema_version": TRACE_SCHEMA_VERSION,
            "sheets": {table.name: table.records() for table in report.tables},
            "notes": report.notes,
            "errors": [{"file": file, "error": text} for file, text in report.errors.items()],
        }
    )


_LOOKS = {
    name: Look(width=width)
    for width, names in (
        (22, ("type",)),
        (26, ("name", "Parent cpu_op")),
        (30, ("file", "job")),
        (50, ("kernel", "Kernel name")),
        (80, ("what", "meaning")),
        (110, ("note",)),
    )
    for name in names
}

OUR_SHEETS = {
    "summary": "One row per file: counts, and exact times in µs (docs: traces).",
    "steps": "The same for each step that the profiler marked.",
    "gemms": "GEMM kernels by kernel and shape. All GEMM time is included, with or without a link "
    "to an operator.",
    "shapes": "The distinct GEMMs of the workload; without work on a GPU, those of its operators.",
    "host_operators": "Operators of traces without work on a GPU, by input sizes and types: times "
    "in µs on the host, with nested operators excluded from self_us. Matrix products, each counted "
    "for one operator only, also have their sizes and the 10¹² FLOP/s of the median call.",
    "collectives": "Matched collectives by kind; bandwidths in 10⁹ bytes/s.",
    "matched": "Every matched collective.",
    "ranks": "Which rank came last, which waited, and whose clock differs.",
    "problems": "What could not be read or is missing.",
}
"""Gemmetry's own sheets, after those with TraceLens' names."""

NOTES = (
    ("sheets", "Sheets from gpu_timeline to straggler_summary have the names, columns and units of "
     "TraceLens' workbooks (AMD-AGI/TraceLens 171dd747); the sheets after them are gemmetry's own. "
     "Sheets that would be empty are left out."),
    ("exactness", "Sums and unions of times are computed in whole nanoseconds."),
    ("GFLOPS", "The number of floating-point operations of one call in 10⁹ (2·B·M·N·K for a GEMM, "
     "and B·M·N more for a bias): an amount, not a speed. The descriptions of each sheet's columns "
     "state what is counted."),
    ("MB, GB/s", "In TraceLens' sheets MB means 2²⁰ bytes and GB/s means 2³⁰ bytes/s. The sheets "
     "collectives and matched use 10⁹ bytes/s, as nccl-tests does, so their numbers are 1.0737 "
     "times as large."),
    ("GEMM", "The kernel times of the GEMM sheet include everything that a call launched, also "
     "fills, copies and helper kernels, as in TraceLens. GEMMs that no operator records are not in "
     "it; the sheet gemms has all GEMMs, by kernel."),
    ("kernel lists", "A list begins with a kernel that multiplies, if the operator launched one. "
     "TraceLens' lists begin with the shortest kernel, often a fill, and have an entry for each "
     "position in the call; these have one for each kernel and stream. Numbers are plain Python."),
    ("fills", "Fills that an operator launched count as its time; TraceLens counts them on NVIDIA "
     "GPUs, but not on AMD GPUs."),
    ("operators by what they compute", "SDPA, CONV, BinaryElementwise, UnaryElementwise, "
     "Normalization and Reduce list PyTorch's own operators and those of flash_attn, as in "
     "TraceLens, with everything that a call launched. A call within a call of the same sheet has "
     "a row of its own, so sums over the sheet count such time twice. Calls without work on a GPU "
     "have no row; TraceLens gives them 0 µs. As in TraceLens, a copy counts one FLOP per "
     "element."),
    ("corrected models", "Where TraceLens' amounts differ from what the operator does, these "
     "sheets follow the operator. The bias of a convolution and the groups of a transposed one "
     "count, and a backward pass counts only the gradients that were requested. Attention moves "
     "elements of the width of their type, not always 2 bytes, and the arguments of flash_attn's "
     "backward are read at their own positions. Whether a normalization trains, has weights or "
     "needs a gradient is read from the recorded arguments; cuDNN and MIOpen run backward only "
     "after training; in group_norm backward all channels have weights. Reductions have as many "
     "results as they leave; max and min of two tensors are not reductions; a leading scalar "
     "does not set the result's type; bool and 16-bit integers have bytes."),
    ("unified_perf_summary", "An operator with a known model represents everything that it "
     "launched, as in TraceLens. Backward passes of attention are listed under the operator that "
     "launched them, without speeds; SDPA_bwd has their speeds."),
    ("processes", "process_name and process_label are empty, and thread_name is process/thread: "
     "the names in a trace are not kept."),
    ("parents", "Kernels whose launch is not in the file have rows without a parent; TraceLens "
     "drops them from short_kernels_summary."),
    ("op category", "The category follows from the operator's name, or else from its first kernel. "
     "A few operators that TraceLens calls other have a category here (attention, optimisers)."),
    ("UID", "ex_UID and UID_first are the External id of the trace, not TraceLens' event number."),
    ("collectives", "All kinds of collectives are matched, compared and counted, not only the four "
     "of TraceLens. What a kernel does not record is taken from the operators around its launch. "
     "A kernel that names no group gets the group of its stream, if there is only one. Times are "
     "as recorded; the sheet ranks shows where clocks differ."),
    ("not included", "Models of operators of other libraries (vLLM, AITER, Transformer Engine, "
     "Primus, Triton, attention with several lengths, experts), whose time is in ops_unique_args, "
     "and separate sheets of uneven all-to-alls."),
)  # fmt: skip


def trace_workbook(report: TraceReport) -> bytes:
    """The workbook.

    Raises:
        RequestError: XlsxWriter is not installed.
        StorageError: it is large, and the temporary files for it cannot be written.
    """
    return workbook([*report.tables, _notes(report), _columns(report)], _LOOKS)


def _notes(report: TraceReport) -> Table:
    own = [("this report", note) for note in (*report.notes, *left_out(report.tables))]
    return Table("notes", (Column("about"), Column("note")), [*own, *NOTES])


def _columns(report: TraceReport) -> Table:
    """The contents of gemmetry's own sheets, and the meanings of all columns."""
    rows: list[tuple[str, str, str, str]] = []
    for table in report.tables:
        if table.name in OUR_SHEETS:
            rows.append((table.name, "", "", OUR_SHEETS[table.name]))
        rows += [(table.name, c.name, c.unit, c.description) for c in table.columns]
    return Table("columns", tuple(map(Column, ("sheet", "column", "unit", "meaning"))), rows)
