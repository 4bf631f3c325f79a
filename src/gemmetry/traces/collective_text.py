"""Collectives of jobs on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmetry.domain.units import counted, format_memory
from gemmetry.results.texts import cut, printable
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.rows import Row, kernel_durations, kind_row

BOUNDS = {"latency_us_median": "≤", "algbw_gbps_median": "≥", "busbw_gbps_median": "≥"}
"""Columns of kinds -> the sign before a number whose kind is not complete."""

ABOUT_BOUNDS = (
    "≤ and ≥ mark bounds: some ranks of these groups have no file, or no trace names the group. "
    "The rank that came last may be one of them."
)
"""What these signs mean, wherever they are shown."""

_MOST_CHARACTERS = 20
"""Characters shown of a type's name; PyTorch's longest name has 16."""


def bounded(text: str, column: str, *, complete: bool, above_link: bool = False) -> str:
    """The text of a number, preceded by the sign of a bound if it is one, and followed by ! if it
    is a bus bandwidth that exceeds the links of a GPU."""
    sign = "" if complete or not text else BOUNDS.get(column, "")
    mark = "!" if above_link and text and column == "busbw_gbps_median" else ""
    return f"{sign} {text}{mark}" if sign else f"{text}{mark}"


def print_jobs(jobs: Sequence[JobCollectives], console: Console) -> None:
    """Print each job: its kinds of collectives, its ranks, and notes about them."""
    for number, found in enumerate(jobs):
        if number:
            console.print()
        print_job(found, console)


def print_job(found: JobCollectives, console: Console) -> None:
    """Print one job."""
    job, matching = found.job, found.matching
    left = sum(matching.unmatched.values())
    size = job.world_size or len(job.ranks) + len(job.missing)
    console.print(Text(printable(job.name), style="bold", overflow="fold"))
    kernels = sum(len(one.collectives) for one in job.ranks)
    ranks = f"{len(job.ranks)} of {size} ranks" if size > 1 else "1 rank"
    if not kernels:
        console.print(f"{ranks}, no communication kernel")
        return
    console.print(
        f"{ranks}, {counted(kernels, 'communication kernel')}: "
        f"{counted(len(matching.matched), 'collective')} matched, {counted(left, 'kernel')} not"
    )
    if matching.matched:
        console.print(_kinds(found))
        if not all(one.is_complete for kind in found.kinds for one in kind.ones):
            console.print(ABOUT_BOUNDS, style="dim")
    else:
        console.print(_kernels([one for rank in job.ranks for one in rank.collectives]))
    if len(job.ranks) > 1:
        console.print(_ranks(found))
    for note in found.notes:
        console.print(Text(f"note: {printable(note)}", style="dim"))


def _kinds(found: JobCollectives) -> Table:
    table = _table("operation", "type", "size", "n", "", "latency\nµs", "start\nskew µs",
                   "algbw\nGB/s", "busbw\nGB/s")  # fmt: skip
    for kind in found.kinds:
        row = kind_row(kind)
        table.add_row(
            kind.op or "-", _plain(kind.dtype), _size(row["bytes"]),
            "-" if kind.group_size is None else str(kind.group_size), f"x{row['count']}",
            _median(row, "latency_us_median"), _median(row, "start_skew_us_median"),
            _median(row, "algbw_gbps_median"), _median(row, "busbw_gbps_median"),
        )  # fmt: skip
    return table


def _kernels(kernels: Sequence[Collective]) -> Table:
    """The table of a single rank, without bandwidths, as durations include waits for others."""
    table = _table("operation", "type", "size", "", "total\nms", "min\nµs", "median\nµs")
    for one in kernel_durations(kernels):
        table.add_row(
            one.op or "-", _plain(one.dtype), _size(one.bytes), f"x{one.count}",
            f"{one.sum_ns / 1e6:.3f}", f"{one.min_ns / 1e3:.1f}", f"{one.median_ns / 1e3:.1f}",
        )  # fmt: skip
    return table


def _ranks(found: JobCollectives) -> Table:
    offsets = found.offsets_ns
    heads = ["rank", "last", "", "waited\nms", "not\nmatched"]
    table = _table(*heads, *(["clock\nµs"] if offsets else []), left=0)
    for one in found.stragglers(corrected=bool(offsets)):
        cells = [
            str(one.rank), f"x{one.last_count}", f"{one.last_share:.0%}",
            f"{one.waited_ns / 1e6:.3f}", str(found.matching.unmatched[one.rank]),
        ]  # fmt: skip
        if offsets:
            cells.append(f"{offsets[one.rank] / 1000:+.1f}")
        table.add_row(*cells)
    if offsets:
        table.caption = "corrected for the offsets of clocks"
        table.caption_justify = "left"
    return table


def _table(*heads: str, left: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        right = place >= left
        table.add_column(
            head, justify="right" if right else "left", no_wrap=True, vertical="bottom"
        )
    return table


def _plain(dtype: str | None) -> Text:
    """The name of a type. An unknown type comes from the trace, so it is not interpreted as markup
    and is cut if it is long."""
    return Text(cut(dtype or "-", _MOST_CHARACTERS))


def _median(row: Row, column: str) -> str:
    value = row[column]
    if value is None:
        return "-"
    return bounded(f"{value:.1f}", column, complete=row["complete"], above_link=row["above_link"])


def _size(size: int | None) -> str:
    return "-" if size is None else format_memory(size)
