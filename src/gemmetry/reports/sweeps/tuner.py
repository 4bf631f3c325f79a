"""The best way to run each collective, on a terminal and in the tuner plugin's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmetry.analysis.sweeps.collectives.tuner import TunedCollective, tuner_lines
from gemmetry.analysis.sweeps.points.best import Ranked
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import counted, format_memory
from gemmetry.formats.nccl.tuner import TunerEntry, tuner_config
from gemmetry.reports.lines import print_line
from gemmetry.reports.tables.terminal import print_table
from gemmetry.reports.texts import printable

if TYPE_CHECKING:
    from rich.console import Console


def print_tuned(tuned: Sequence[TunedCollective], console: Console) -> None:
    """Print what is set and what is not, then a table of all collectives."""
    from rich.text import Text

    for sentence in tuned_sentences(tuned):
        print_line(Text(printable(sentence)), console, indent=2)
    if tuned:
        print_table(_table(tuned), console)


def tuned_sentences(tuned: Sequence[TunedCollective]) -> list[str]:
    """For how many collectives a setting is shown, and why there is none for the others."""
    if not tuned:
        return ["The traces have no collective that could be matched between all ranks."]
    count = sum(not one.obstacle for one in tuned)
    found = [f"A best setting is shown for {count} of {counted(len(tuned), 'collective')}."]
    reasons: dict[str, int] = {}
    for one in tuned:
        if one.obstacle:
            reasons[one.obstacle] = reasons.get(one.obstacle, 0) + 1
    return found + [f"Without one: {number}, {reason}." for reason, number in reasons.items()]


def tuner_text(sweep: str, tuned: Sequence[TunedCollective]) -> str:
    """The content of ``nccl_tuner.conf``: a line for each collective whose best way is shown, and
    the evidence for all of them as comments. `sweep`: its name."""
    title = (
        f"Settings of collectives from the sweep {sweep}. Each line is the fastest way to run one "
        "collective; whether steps are shorter with it is for another run to show."
    )
    lines = zip(tuned, tuner_lines(tuned), strict=True)
    return tuner_config(title, [TunerEntry(evidence(one), line) for one, line in lines])


def evidence(one: TunedCollective) -> str:
    """What the sweep shows of one collective, in sentences for a comment."""
    source = "NCCL's records" if one.source == "nccl_records" else "traces"
    best, rival = one.best, one.rival
    text = (
        f"{_name(one)} of {format_memory(one.bytes)} on {counted(one.ranks, 'rank')}: "
        f"{best.mean_ms * 1e3:.1f} us with {best.configuration.label} ({_counts(best)}, from "
        f"{source})"
    )
    if rival is not None and rival.comparison is not None:
        text += f"; {rival.configuration.label} takes {rival.mean_ms * 1e3:.1f} us"
        interval = rival.comparison.interval
        if interval is not None:
            low, high = (100 * (end - 1) for end in interval)
            text += f", {low:+.1f} % to {high:+.1f} % ({_counts(rival)})"
    return f"{text}.\n" + (f"Not set: {one.obstacle}." if one.obstacle else "Set: faster.")


def _name(one: TunedCollective) -> str:
    return one.operation.replace("_", "-")


def _counts(one: Ranked) -> str:
    return f"{counted(one.runs, 'run')}, {counted(one.steps, 'collective')}"


def _table(tuned: Sequence[TunedCollective]) -> Table:
    columns = (
        Column("collective"), Column("size"), _number("us"), Column("way"),
        Column("channels", ColumnType.INTEGER, absent="?"),
        Column("next %"), Column("verdict"),
    )  # fmt: skip
    rows = [
        [
            _name(one), format_memory(one.bytes), one.best.mean_ms * 1e3,
            f"{one.way.algorithm or '?'}, {one.way.protocol or '?'}", one.way.channels,
            _next(one), one.verdict,
        ]
        for one in tuned
    ]  # fmt: skip
    return Table("collectives", columns, rows)


def _number(name: str) -> Column:
    return Column(name, ColumnType.NUMBER, format="{:,.1f}".format, absent="-")


def _next(one: TunedCollective) -> str:
    """``+9 (+8 to +10)``: by how much the next best way takes longer."""
    comparison = one.rival.comparison if one.rival is not None else None
    if comparison is None:
        return "-"
    text = f"{100 * (comparison.ratio - 1):+.0f}"
    if comparison.interval is None:
        return text
    low, high = (100 * (end - 1) for end in comparison.interval)
    return f"{text} ({low:+.0f} to {high:+.0f})"
