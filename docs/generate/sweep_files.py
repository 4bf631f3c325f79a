"""Prints ``docs/sweep-files.md``, the files of a sweep's analysis, from the declarations of their
columns.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gemmetry.documents.sweep_files import (
    ALL_DATA,
    HEAD,
    MASTER,
    OVERLAP,
    ROBUST,
    SUMMARY,
    TIMESTAMPS,
)
from gemmetry.documents.sweep_plots import MOST_BOXES
from gemmetry.documents.sweep_workbooks import STEPS
from gemmetry.domain.tables import Column
from gemmetry.results.tables import escape_markdown as escape

_TOP = "top<K>_gemm_kernels_time_variance"

_CONTENTS = {
    "`<T>thread/individual_reports/perf_<C>ch_rank<R>.xlsx`":
        "the [report of one trace](trace-report-sheets.md)",
    "`<T>thread/collective_reports/collective_<C>ch.xlsx`":
        "the sheets about collectives of all ranks of a point, as in the [report of its "
        "traces](trace-report-sheets.md)",
    f"`{_TOP}.csv`": "the K GEMMs of each rank and point whose times differ most",
    f"`{_TOP}_with_timestamps.csv`":
        "the same, and when their shortest and longest instance ran",
    f"`{_TOP}_with_collective_overlap.csv`":
        "the same, and the collectives next to the longest instance; whether collectives slow the "
        "GEMM",
    "`gpu_timeline_all_configs_mean.xlsx`":
        "how the time of the GPUs is divided at each point; with `--geo-mean` `…_geomean.xlsx`",
    "`nccl_master_all_configs.xlsx`, `.csv`": "the collectives of all points",
    "`plots/variance_*.png`": "five pictures of the times of all GEMMs",
    "`analysis.json`": "[every figure](sweep-analysis.md#analysis-json)",
}  # fmt: skip

_FILES = "| file | content |\n|---|---|\n" + "".join(
    f"| {name} | {content} |\n" for name, content in _CONTENTS.items()
)

_HEAD = f"""\
# Files of a sweep's analysis

This page is generated: `python docs/generate/sweep_files.py > docs/sweep-files.md`.

[`gemmetry sweep analyze`](sweep-analysis.md) writes these files into `tracelens_analysis/` of the
sweep if it exists, else into `analysis/`. Names and columns are those of the scripts of ROCm/aorta
(7eeb04e, `scripts/gemm_analysis`); where those fall short, further columns follow.

{_FILES}
In a sweep with further axes or repeats, folders `<axis>=<value>/` and `repeat_<NN>/` below
`<T>thread/` hold the reports of each, and `full_config` names them. K is 5, or the value of
`--top-k`. `--only LIST` writes only some of the files: {", ".join(f"`{step}`" for step in STEPS)}.
Without XlsxWriter no workbooks are written, and without matplotlib no plots.

## From workbooks alone

If a sweep has no traces any more, but still has `<T>thread/individual_reports/` and
`<T>thread/collective_reports/` of TraceLens or of gemmetry, the variance, the plots, the timeline
and the collectives are made from those. Columns are found by their names. Workbooks do not show
when single instances ran, so there are no timestamps and no overlap, and the plots show the
shortest, the median and the longest time of each GEMM.

## The plots

Each instance of each GEMM is drawn, not only those that vary most, as a multiple of the median of
the same kernel and shape alone over the whole sweep: at 1.2 it took a fifth longer. Instances next
to communication are drawn separately from those that ran alone. Points without data are marked as
such and are never drawn as 0. More than {MOST_BOXES} ranks are drawn as a line with a band instead
of boxes. The picture of threads and channels shows the instances next to communication where
there are any.

## top<K>_gemm_kernels_time_variance.csv

Rows are chosen per rank and point by `time_diff_us`, largest first. A row is a kernel with a shape,
so that all its times are of the same problem; kernels of unknown shape are listed only where the
traces record no shapes. After the first columns, all columns of the sheet `GEMM` follow as `col_…`,
with the values of the operator that launched the kernel.

"""

_TIMELINE = """\
## gpu_timeline_all_configs_mean.xlsx

The sheet `All_Data` has one row per point and row of `gpu_timeline`; `Pivot_Time_ms` and
`Pivot_Percent` have its `time ms` and `percent` with a column for each point, empty where the point
has no traces; `Summary_By_Config` has one row per point. A geometric mean is 0 if one of
the times is 0.

"""

_MASTER = """\
## nccl_master_all_configs.xlsx

The rows are those of `nccl_summary_implicit_sync` of each point. MB means 2²⁰ bytes and GB/s 2³⁰
bytes/s, as in TraceLens.

"""


def files_page() -> str:
    """The whole page as Markdown."""
    varying = _table((*HEAD, *ROBUST))
    return (
        f"{_HEAD}{varying}\nColumns of `…_with_timestamps.csv` in addition:\n\n"
        f"{_table(TIMESTAMPS)}\nColumns of `…_with_collective_overlap.csv` in addition:\n\n"
        f"{_table(OVERLAP)}\n{_TIMELINE}Columns of `All_Data`:\n\n{_table(ALL_DATA)}\n"
        f"Columns of `Summary_By_Config`:\n\n{_table(SUMMARY)}\n{_MASTER}{_table(MASTER)}"
    )


def _table(columns: Iterable[Column]) -> str:
    rows = "".join(
        f"| `{column.name}` | {escape(column.unit)} | {escape(column.description)} |\n"
        for column in columns
    )
    return f"| column | unit | meaning |\n| --- | --- | --- |\n{rows}"


if __name__ == "__main__":
    sys.stdout.write(files_page())
