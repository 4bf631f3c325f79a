"""A report of traces as an Excel workbook: its sheets, then notes and the meanings of columns."""

from __future__ import annotations

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.domain.tables import Column, Table
from gemmetry.reports.tables.xlsx import Look, left_out, workbook
from gemmetry.traces.tracelens.sheets import SHEETS

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
    "summary": "One row a file: counts, and exact times in µs (docs: traces).",
    "steps": "The same for each step that the profiler marked.",
    "gemms": "GEMM kernels by kernel and shape; all GEMM time is in it, linked or not.",
    "shapes": "The distinct GEMMs of the workload; without work on a GPU, those of its operators.",
    "host_operators": "Operators of traces without work on a GPU, by input sizes and types: times "
    "in µs on the host, self_us without the operators nested in them; of matrix products, each "
    "recorded for one operator alone, the sizes, and 10¹² FLOP/s of the median call.",
    "collectives": "Matched collectives by kind; bandwidths in 10⁹ bytes/s.",
    "matched": "Every matched collective.",
    "ranks": "Who came last, who waited, and whose clock differs.",
    "problems": "What could not be read.",
}
"""Sheets of our own, after those with TraceLens' names."""

NOTES = (
    ("sheets", "Sheets from gpu_timeline to straggler_summary have the names, columns and units of "
     "TraceLens' workbooks (AMD-AGI/TraceLens 171dd747); the sheets after them are gemmetry's own. "
     "Sheets that would be empty are left out."),
    ("exactness", "Sums and unions of times are made in whole nanoseconds."),
    ("GFLOPS", "10⁹ FLOP of one call, of GEMMs 2·B·M·N·K (and B·M·N for a bias): an amount, not a "
     "speed. Each sheet's column says what counts."),
    ("MB, GB/s", "In TraceLens' sheets MB are 2²⁰ bytes and GB/s are 2³⁰ bytes/s; in collectives "
     "and matched they are 10⁹ bytes/s, as nccl-tests counts: a number there is 1.0737 times as "
     "large."),
    ("GEMM", "Kernel times of the GEMM sheet are those of all that a call launched, fills, copies "
     "and helper passes too, as TraceLens counts; GEMMs that no operator records are not in it. "
     "The sheet gemms has all of them, by kernel."),
    ("kernel lists", "The first kernel of a list is one that multiplies, if the operator launched "
     "one; TraceLens' lists begin with the shortest, often a fill, and have an entry for each "
     "place in the call, ours for each kernel and stream. Numbers are plain Python."),
    ("fills", "Fills that an operator launched count in its time; TraceLens counts them on GPUs "
     "of NVIDIA, and not on those of AMD."),
    ("operators by what they compute", "SDPA, CONV, BinaryElementwise, UnaryElementwise, "
     "Normalization and Reduce have PyTorch's own operators and flash_attn's, as TraceLens has, "
     "with all that a call launched. A call within a call of the same sheet has a row of its own, "
     "so their sums count such time twice. Calls without work on a GPU have no row; TraceLens "
     "gives them 0 µs. A copy counts one FLOP an element, as there."),
    ("corrected models", "Where TraceLens' amounts are not those of the operator, ours are: the "
     "bias of a convolution counts, groups of a transposed one do, and backward only the gradients "
     "that were requested; attention moves elements as wide as their type, not always 2 bytes, and "
     "arguments of flash_attn's backward are read at their own places; whether a normalization "
     "trains, has weights or wants a gradient is read as it is written, and cuDNN and MIOpen go "
     "backward only after training; of group_norm backward all channels have weights; reductions "
     "have as many results as they leave; max and min of two tensors are no reductions; a scalar "
     "that comes first does not set the result's type; bool and 16-bit integers have bytes."),
    ("unified_perf_summary", "Operators of which is known what they compute stand for all that "
     "they launched, as in TraceLens. Backward passes of attention stand there under the operator "
     "that launched them, without speeds; SDPA_bwd has these."),
    ("processes", "process_name and process_label are empty, and thread_name is process/thread: "
     "the names that a trace gives them are not kept."),
    ("parents", "Kernels whose launch is not in the file have rows without a parent; TraceLens "
     "drops them from short_kernels_summary."),
    ("op category", "By the operator's name, else by its first kernel; a few operators that "
     "TraceLens calls other have one here (attention, optimisers)."),
    ("UID", "ex_UID and UID_first are External id of the trace, not TraceLens' event number."),
    ("collectives", "All kinds of collectives are matched, compared and counted, not only the four "
     "of TraceLens; what a kernel does not record is taken from the operators around its launch. "
     "A kernel that names no group has that of its stream, if that leaves one only. Times are as "
     "recorded; the sheet ranks shows where clocks differ."),
    ("not made", "Models of operators of other libraries (vLLM, AITER, Transformer Engine, Primus, "
     "Triton, attention of several lengths, experts), whose time is in ops_unique_args, and sheets "
     "of uneven all-to-alls by themselves."),
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
    """What the columns of TraceLens' sheets mean, of the sheets that are there."""
    present = {table.name for table in report.tables}
    rows = [
        (sheet.name, column.name, column.unit, column.description)
        for sheet in SHEETS
        if sheet.name in present
        for column in sheet.columns
    ]
    rows += [(name, "", "", what) for name, what in OUR_SHEETS.items() if name in present]
    return Table("columns", tuple(map(Column, ("sheet", "column", "unit", "meaning"))), rows)
