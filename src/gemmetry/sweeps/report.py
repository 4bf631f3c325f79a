"""Report of a sweep, or of a comparison of sweeps: sentences with numbers, for terminals and pages,
and the tables of terminals, at most 80 columns wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gemmetry.dispatches.terminal import print_table
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.domain.units import (
    format_change,
    format_interval,
    format_memory,
    format_percent,
    noun_for,
    plural,
)
from gemmetry.results.lines import print_line
from gemmetry.results.texts import elide, printable
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.comparison import (
    KIND,
    PARTS,
    ComparedSweep,
    RowGroup,
    SweepComparison,
    SweepRow,
)
from gemmetry.sweeps.rows import GemmKind, RocprofKernel, SweepConfiguration, configuration_of
from gemmetry.traces.names import KernelKind, classify, is_gemm

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.sweeps.points import SweepAnalysis

Entry = Mapping[str, Any]
"""An entry of ``analysis.json``."""

Answer = tuple[str, str]
"""A topic and a sentence about it."""

MEASURES = {
    "step_ms": "step",
    "best_step_ms": "step of the best point",
    "mean_step_ms": "step, mean over the points",
    "trace_ms": "whole trace",
    "best_trace_ms": "whole trace of the best point",
    "mean_trace_ms": "whole trace, mean over the points",
    "median_us": "all instances",
    "alone_median_us": "alone",
    "overlapped_median_us": "next to communication",
    "slowdown": "slowdown by communication",
    "latency_us": "latency",
    **PARTS,
}
"""Key of a compared figure -> its name."""

_MOST_PERCENT = 11
"""Ratios from here on are not given in percent."""

_KERNEL = 32
"""Characters of a kernel's name in a label: the ends, which differ between tiles."""

_ENDS = {
    "shown": ", which is shown",
    "slower": ", which is noise",
    "no difference shown": "; no difference is shown",
    "undecided": ", which is undecided",
}
"""Verdict -> the end of the sentence."""


def point_label(entry: Entry) -> str:
    """``256 threads, 8 channels, repeat 2`` of an entry of ``analysis.json``."""
    repeat = entry.get("repeat", 1)
    return configuration_of(entry).label + (f", repeat {repeat}" if repeat > 1 else "")


def mark_of(entry: Entry) -> str:
    """Mark of a point that is not compared: ``failed``; "" for others."""
    if entry["outcome"] != "ok":
        return str(entry["outcome"]).replace("_", " ")
    return "incomplete" if entry.get("left_out") else ""


def marked_label(entry: Entry) -> str:
    """The point with its mark: ``... (failed)``."""
    mark = mark_of(entry)
    return point_label(entry) + (f" ({mark})" if mark else "")


def first_few(texts: Sequence[str], most: int, *, before: str = "; ") -> str:
    """The first texts, and how many more there are."""
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"{before}and {more} more" if more > 0 else "")


def left_out_text(points: Sequence[Entry]) -> str:
    """Points that are not compared, each with the reason; of many, the first ones."""
    return first_few([f"{point_label(one)} ({one['reason']})" for one in points], 3)


def gemm_label(entry: Entry, among: Iterable[Entry] = ()) -> str:
    """The sizes of a GEMM, and whether the kernel only sums what others multiplied. Without sizes
    it is the kernel's name, which follows sizes that another kernel of `among` has too. Format and
    layouts follow where `among` has the same sizes with others."""
    kernel, sizes = entry["kernel"], KIND[1:5]
    shape = GemmKind(kernel=kernel, **{name: entry[name] for name in sizes}).shape
    if not shape:
        return str(kernel)
    is_helper = classify(kernel).kind is KernelKind.GEMM_REDUCTION
    label = shape + (" (sum of slices)" if is_helper else "")
    same = [one for one in among if all(one.get(name) == entry[name] for name in sizes)]
    same.insert(0, entry)
    for name in KIND[5:]:
        if len({one.get(name) for one in same if one["kernel"] == kernel}) > 1:
            label += f" {entry.get(name) or 'unknown'}"
    if len({one["kernel"] for one in same}) > 1:
        label += f" by {elide(kernel, _KERNEL)}"
    return label


def collective_label(entry: Entry) -> str:
    """``all-gather of 384 MiB``."""
    name = (entry["op"] or "unknown operation").replace("_", "-")
    size = "unknown size" if entry["bytes"] is None else format_memory(entry["bytes"])
    return f"{name} of {size}"


def row_label(row: SweepRow, among: Iterable[SweepRow] = ()) -> str:
    """What a row compares, without its point; with the kernel where `among` has another one of the
    same sizes. "" of a step and its parts."""
    if row.group is RowGroup.GEMMS:
        gemms = [vars(one.keys) for one in among if one.group is RowGroup.GEMMS]
        return gemm_label(vars(row.keys), gemms)
    return collective_label(vars(row.keys)) if row.group is RowGroup.COLLECTIVES else ""


def longer(ratio: float) -> str:
    """``3.1 % longer`` of the ratio 1.031, ``3.1 % less`` of 0.969."""
    if ratio >= _MOST_PERCENT:
        return f"{ratio:,.0f} times as long"
    return f"{abs(100 * (ratio - 1)):.1f} % {'longer' if ratio >= 1 else 'less'}"


def interval_text(low: float | None, high: float | None) -> str:
    """`` (+1.2 % to +4.3 %)``; "" without an interval."""
    text = format_interval(low, high)
    return f" ({text})" if text else ""


def _ratio_text(entry: Entry) -> str:
    """The ratio of an entry in percent, with its interval."""
    interval = interval_text(entry["ratio_ci_low"], entry["ratio_ci_high"])
    return format_change(entry["ratio"]) + interval


def figure_text(value: float, unit: str) -> str:
    """A figure with its unit and sensible digits."""
    if unit == "×":
        return f"{value:.3f}×"
    return f"{value:,.{0 if value >= 100 and unit == 'µs' else 2}f} {unit}"


def sentences(document: Entry) -> list[str]:
    """Sentences on the sweep of a document (``analysis.json``)."""
    return [text for _, text in answers(document)]


def answers(document: Entry) -> list[Answer]:
    """The sentences, each with its topic."""
    points = document["points"]
    return _listed({
        "Traces": [_traces(points, document.get("source", "traces"))],
        "Best point": _best(document["best"]),
        "Cost of overlap": _overlap(document["pooled_gemms"]),
        "Stragglers": _stragglers(points),
        "Settings": _settings(document.get("settings", [])),
        "Effect on the step": _effects(document.get("effects", []), document.get("settings", [])),
    })  # fmt: skip


def _listed(by_topic: Mapping[str, Sequence[str]]) -> list[Answer]:
    return [(topic, text) for topic, texts in by_topic.items() for text in texts]


def _traces(points: Sequence[Entry], source: str) -> str:
    traced = [len(one["ranks"]) for one in points if one["ranks"]]
    have = noun_for(len(traced), "has", "have")
    of_all = f"{len(traced)} of {plural(len(points), 'point')}"
    return f"{of_all} {have} {source}: {sum(traced)} in all."


def _best(best: Entry) -> list[str]:
    left_out = best.get("left_out")
    rest = [f"Left out of the choice: {left_out_text(left_out)}."] if left_out else []
    if best["step_ms"] is None:
        return rest
    chosen, second = configuration_of(best), best["next"]
    start = f"Shortest step: {best['step_ms']:.2f} ms"
    if chosen != SweepConfiguration():
        start += f" with {chosen.label}"
    if second is None:
        return [f"{start}, the only configuration with steps.", *rest]
    verdict = "shown" if best["verdict"] == "faster" else best["verdict"]
    interval = interval_text(second["ratio_ci_low"], second["ratio_ci_high"])
    note = f": {second['note']}" if second["note"] else ""
    text = (
        f"{start}; the next best, {configuration_of(second).label}, takes "
        f"{longer(second['ratio'])}{interval}{_ENDS[verdict]}{note}."
    )
    return [text, *rest]


def slowed_gemms(gemms: Iterable[Entry]) -> list[Entry]:
    """GEMMs of a point that are shown to be slowed, those that cost most per step first."""
    found = (one for one in gemms if one["verdict"] == "slower")
    return sorted(found, key=lambda one: -(one["cost_ms_per_step"] or 0))


def _overlap(gemms: Sequence[Entry]) -> list[str]:
    slowed = slowed_gemms(gemms)
    judged = sum(one["slowdown_ci_low"] is not None for one in gemms)
    of_judged = f"of {plural(judged, 'GEMM')} that could be judged"
    lost = sum(one["verdict"] == "no control group" for one in gemms)
    found = []
    if slowed:
        gemm = slowed[0]
        cost = gemm["cost_ms_per_step"]
        interval = interval_text(gemm["slowdown_ci_low"], gemm["slowdown_ci_high"])
        found.append(
            f"Communication slows {len(slowed)} {of_judged}. "
            f"The most expensive is {gemm_label(gemm, gemms)} with {point_label(gemm)}: "
            f"{gemm['alone_median_us']:,.0f} µs alone, {gemm['overlapped_median_us']:,.0f} µs next "
            f"to communication, {format_change(gemm['slowdown'])}{interval}"
            + ("." if cost is None else f", {cost:.2f} ms of each step.")
        )
    elif judged:
        found.append(f"Communication is shown to slow none {of_judged}.")
    if lost:
        found.append(
            f"{plural(lost, 'GEMM')} always ran next to communication, so there is nothing to "
            f"compare {noun_for(lost, 'it', 'them')} with; the same workload on one rank (gemmetry "
            "sweep run … --nproc 1) would show it."
        )
    return found


def _stragglers(points: Sequence[Entry]) -> list[str]:
    found = [(point, one) for point in points for one in point["stragglers"]]
    shown = [(point, one) for point, one in found if one["is_straggler"]]
    if not shown:
        return [_no_straggler(found)] if found else []
    shown.sort(key=lambda item: -(item[1]["lost_us"] or 0))
    (point, worst), *others = shown
    count, since, lost = worst.get("collectives"), worst["since_step"], worst["lost_us"]
    its = "the collectives" if count is None else f"its {plural(count, 'collective')}"
    text = (
        f"With {point_label(point)}, rank {worst['rank']} delays the others: it enters "
        f"{format_percent(worst['last_share'])} of {its} last"
    )
    text += "" if since is None else f", from step {since} on"
    if worst["lost_in"]:
        time = "time" if lost is None else f"{lost / 1000:.2f} ms of each step"
        text += f", and loses {time} in {worst['lost_in']}"
    if not others:
        return [f"{text}."]
    listed = [_straggler(*one) for one in others[:5]]
    listed += [f"{len(others) - 5} more"] if len(others) > 5 else []
    return [f"{text}.", f"Further stragglers: {'; '.join(listed)}."]


def _straggler(point: Entry, rank: Entry) -> str:
    """``rank 3 with 256 threads, 8 channels (4.20 ms of each step)``."""
    lost = rank["lost_us"]
    last = f"last in {format_percent(rank['last_share'])}"
    size = last if lost is None else f"{lost / 1000:.2f} ms of each step"
    return f"rank {rank['rank']} with {point_label(point)} ({size})"


def _no_straggler(found: Sequence[tuple[Entry, Entry]]) -> str:
    text = "No rank is shown to delay the others"
    points = {id(point) for point, _ in found}
    unsure = {id(point): point for point, one in found if one.get("verdict") == "undecided"}
    if not unsure:
        return f"{text}."
    steps = plural(max(point["step_ms"]["n"] for point in unsure.values()), "step")
    where = f"at {len(unsure)} of {plural(len(points), 'point')}"
    return f"{text}; {where} it is undecided after {steps}: record more."


def _settings(settings: Sequence[Entry]) -> list[str]:
    """Settings without effect, each with its reason; else a line that all are in effect."""
    found = [one["reason"] for one in settings if one["verdict"] != "in effect"]
    effective = [one["name"] for one in settings if one["verdict"] == "in effect"]
    if effective:
        found.append(f"Took effect in every point: {', '.join(effective)}.")
    return found


def _effects(effects: Sequence[Entry], settings: Sequence[Entry]) -> list[str]:
    """One sentence for each setting: its largest effect that is shown, else that there is none, or
    that it is undecided. The latter two are left out of a setting that changed nothing."""
    without = {one["name"] for one in settings if one["verdict"] == "no effect"}
    starts = {
        ("slower", "faster"): "The step depends on {}",
        ("undecided",): "Whether the step depends on {} is undecided",
        ("no difference shown",): "The step is not shown to depend on {}",
    }
    texts = []
    for name in dict.fromkeys(one["name"] for one in effects):
        for verdicts, start in starts.items():
            chosen = [one for one in effects if one["name"] == name and one["verdict"] in verdicts]
            if chosen and ("slower" in verdicts or name not in without):
                one = max(chosen, key=lambda effect: max(effect["ratio"], 1 / effect["ratio"]))
                texts.append(
                    f"{start.format(name)}: {_ratio_text(one)} from {one['before']} to "
                    f"{one['after']}, over {plural(one['pairs'], 'pair')} of points that differ "
                    "in nothing else."
                )
            if chosen:
                break
    return texts


def change_sentences(comparison: SweepComparison, candidate: ComparedSweep) -> list[str]:
    """Sentences on the differences between a candidate and the first sweep."""
    return [text for _, text in change_answers(comparison, candidate)]


def change_answers(comparison: SweepComparison, candidate: ComparedSweep) -> list[Answer]:
    """The sentences, each with its topic."""
    first, other = comparison.label, candidate.label
    if candidate.is_same:
        return [("Runs", f"{other} holds the same runs as {first}: nothing can differ.")]
    best, *means = candidate.rows_of(RowGroup.WHOLE)
    noun = "whole trace" if "trace" in best.measure else "step"
    workbooks = (
        "Workbooks show no steps: whole traces are compared, which may have different numbers of "
        "steps."
    )
    return _listed({
        "Workbooks": [workbooks] if noun != "step" else [],
        "Points": _points(candidate, first, other),
        "Best point": [_changes_best(best, first, other)],
        "Steps": [_mean(candidate, row, noun, first, other) for row in means] + _counts(candidate),
        "Parts of the step": _part(candidate, noun),
        "GEMMs": _most_changed(candidate, RowGroup.GEMMS, "GEMM"),
        "Collectives": _most_changed(candidate, RowGroup.COLLECTIVES, "collective"),
    })  # fmt: skip


def _points(candidate: ComparedSweep, first: str, other: str) -> list[str]:
    """Points that only one of the sweeps has, or that fail now."""
    mine, theirs, lost = (
        first_few([one.label for one in ones], 4, before=" ")
        for ones in (candidate.only_first, candidate.only_candidate, candidate.lost)
    )
    if not candidate.has_common_points:
        return [
            f"{first} and {other} have no point in common ({first}: {mine}; {other}: {theirs}), so "
            "only their best points are compared."
        ]
    left_out = {
        label: [vars(one) for one in candidate.left_out if one.sweep == label]
        for label in (first, other)
    }
    return [
        *([f"Compared in {first}, but failed or incomplete in {other}: {lost}."] if lost else []),
        *(f"Only in {label}: {only}." for label, only in ((first, mine), (other, theirs)) if only),
        *(f"Left out in {label}: {left_out_text(of)}." for label, of in left_out.items() if of),
    ]


def _end(row: SweepRow) -> str:
    end = _ENDS["shown" if row.is_shown else str(row.verdict)]
    return end + (f": {row.note}" if row.note else "")


def _change(row: SweepRow) -> str:
    return _ratio_text(row.evidence.record())


def _mean(candidate: ComparedSweep, row: SweepRow, noun: str, first: str, other: str) -> str:
    end = _end(row)
    if row.is_shown and all(
        one.verdict is not row.verdict for one in candidate.rows_of(RowGroup.STEP)
    ):
        end = ", which the points show together, though none of them alone"
    return (
        f"Over all points that both have, the {noun} changes by {_change(row)} on average from "
        f"{first} to {other}{end}."
    )


def _changes_best(row: SweepRow, first: str, other: str) -> str:
    where = row.other_point.label if row.other_point else "the same point"
    return (
        f"The best point takes {row.before:.2f} ms in {first} with {row.place}, and "
        f"{row.after:.2f} ms in {other} with {where}: {_change(row)}{_end(row)}."
    )


def _counts(candidate: ComparedSweep) -> list[str]:
    rows = candidate.rows_of(RowGroup.STEP)
    if not rows:
        return []
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Difference}
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    text = f"Of {plural(len(rows), 'point')} that both have: {listed}"
    shown = [row for row in rows if row.is_shown]
    if not shown:
        notes = {row.note for row in rows if row.verdict is Difference.UNDECIDED}
        return [f"{text}: {notes.pop()}." if len(notes) == 1 else f"{text}."]
    worst = max(shown, key=lambda row: row.size)
    return [
        f"{text}; the largest change is {_change(worst)} with {worst.place}, from "
        f"{worst.before:.2f} to {worst.after:.2f} ms."
    ]


def _part(candidate: ComparedSweep, noun: str) -> list[str]:
    """The part of the step that changes it most, where one is shown to."""
    shown = [row for row in candidate.rows_of(RowGroup.PARTS) if row.is_shown]
    if not shown:
        return []
    row = max(shown, key=lambda row: row.size)
    changes = "lengthens" if row.verdict is Difference.SLOWER else "shortens"
    sizes = sorted(abs(100 * (one - 1)) for one in row.comparison.interval or ())
    interval = f" ({sizes[0]:.1f} to {sizes[1]:.1f} %)" if sizes else ""
    return [
        f"The part that changes most is {PARTS[row.measure]}: with {row.place} it {changes} the "
        f"{noun} by {abs(100 * (row.comparison.ratio - 1)):.1f} %{interval}, from "
        f"{row.before:.2f} to {row.after:.2f} ms."
    ]


def _most_changed(candidate: ComparedSweep, group: RowGroup, noun: str) -> list[str]:
    rows = candidate.rows_of(group)
    shown = [row for row in rows if row.is_shown]
    if not rows:
        return []
    if not shown:
        undecided = sum(row.verdict is Difference.UNDECIDED for row in rows)
        compared, are = plural(len(rows), "comparison"), noun_for(undecided, "is", "are")
        rest = f"; {undecided} of {compared} {are} undecided" if undecided else ""
        return [f"No {noun} is shown to be slower or faster{rest}."]
    row, others = max(shown, key=lambda row: row.size), len(shown) - 1
    more = f" {plural(others, 'more comparison shows', 'more comparisons show')} a difference."
    single = ""
    if 1 in (row.runs_before, row.runs_after):
        single = f", from {plural(row.runs_before, 'run')} and {row.runs_after}"
    return [
        f"The {noun} that changed most is {row_label(row, rows)} with {row.place}: "
        f"{MEASURES[row.measure]} {figure_text(row.before, row.unit)} → "
        f"{figure_text(row.after, row.unit)}, {_change(row)}{single}." + (more if others else "")
    ]


_POOLED = (
    "Over several ranks, a slowdown is the median over pairs of instances of one rank; it differs "
    "from the quotient of the two medians, which are of all instances, where ranks differ."
)


def print_sweep(document: Entry, console: Console, *, top: int = 5) -> None:
    """Print sentences with the answers, then a table of the points and one of the `top` GEMMs that
    cost most.

    Args:
        document: the content of ``analysis.json``.
    """
    gemms = document["pooled_gemms"]
    print_sentences(sentences(document), console)
    print_table(
        shown_table("points", "point", *_STEP, rows=map(_step, document["points"])), console
    )
    slowed = slowed_gemms(gemms)[:top]
    if slowed:
        rows = [
            [point_label(one), gemm_label(one, gemms), one["alone_median_us"],
             one["overlapped_median_us"],
             _range(one["slowdown"], one["slowdown_ci_low"], one["slowdown_ci_high"], ".0f"),
             one["cost_ms_per_step"]]
            for one in slowed
        ]  # fmt: skip
        columns = ("point", "slowed GEMM", number("µs alone", "{:,.0f}"),
                   number("with comm", "{:,.0f}"), "slower by %", number("ms/step"))  # fmt: skip
        print_table(shown_table("slowed GEMMs", *columns, rows=rows), console)
    # A reader who divides the medians of a GEMM finds another percentage.
    if any(
        f"{one['overlapped_median_us'] / one['alone_median_us']:.2f}" != f"{one['slowdown']:.2f}"
        for one in slowed
    ):
        print_sentences([_POOLED], console)


def print_sweep_comparison(comparison: SweepComparison, console: Console) -> None:
    """Print each candidate: how its environment differs, sentences with the answers, a table of the
    points, and the GEMMs and collectives that are shown to change."""
    from rich.text import Text

    for one in comparison.candidates:
        title = f"{one.label} = {one.title}  against  {comparison.label} = {comparison.title}"
        print_line(Text(printable(title), style="bold"), console, indent=4)
        if one.environment_differences:
            console.print(Text("! the environments differ:", style="yellow"))
        for line in one.environment_differences:
            print_line(Text(f"    {printable(line)}", style="yellow"), console, indent=4)
        print_sentences(change_sentences(comparison, one), console)
        steps = one.rows_of(RowGroup.STEP)
        if steps and not one.is_same:
            before, after = f"{comparison.label} ms", f"{one.label} ms"
            columns = ("point", number("before", heading=before),
                       number("after", heading=after), "change, %", "verdict")  # fmt: skip
            rows = [[row.place, row.before, row.after, _percent(row), str(row.verdict)]
                    for row in steps]  # fmt: skip
            print_table(shown_table("points", *columns, rows=rows), console)
        shown = [row for row in one.rows_of(RowGroup.GEMMS, RowGroup.COLLECTIVES) if row.is_shown]
        shown.sort(key=lambda row: -row.size)
        if shown:
            columns = ("change", Column("before", heading=comparison.label),
                       Column("after", heading=one.label), "change, %", "verdict")  # fmt: skip
            rows = [
                [f"{row_label(row, one.rows)} {MEASURES[row.measure]}, {row.place}",
                 figure_text(row.before, row.unit), figure_text(row.after, row.unit),
                 _percent(row), str(row.verdict)]
                for row in shown[:8]
            ]  # fmt: skip
            print_table(shown_table("changes", *columns, rows=rows), console)


def print_sentences(texts: Iterable[str], console: Console) -> None:
    """Print each on a line of its own."""
    from rich.text import Text

    for text in texts:
        print_line(Text(printable(text)), console, indent=2)


def shown_table(name: str, *columns: str | Column, rows: Iterable[list[Any]]) -> Table:
    """A table for a terminal; a column that is only named holds texts."""
    found = tuple(Column(one) if isinstance(one, str) else one for one in columns)
    return Table(name, found, list(rows))


def number(name: str, form: str = "{:.2f}", *, heading: str = "") -> Column:
    """A column of numbers in the format `form`."""
    return Column(name, ColumnType.NUMBER, format=form.format, absent="-", heading=heading)


_STEP = (
    number("step ms"), number("compute"), number("slowed"), number("exposed"),
    number("idle"), Column("n", ColumnType.INTEGER, absent="-"),
)  # fmt: skip


def _step(point: Entry) -> list[Any]:
    if point["step_ms"]["median"] is None:
        return [marked_label(point), *[None] * len(_STEP)]
    parts = ("compute_ms", "slowed_compute_ms", "exposed_comm_ms", "idle_ms")
    step = point["step_ms"]
    return [marked_label(point), step["median"], *(point[part] for part in parts), step["n"]]


def _percent(row: SweepRow) -> str:
    found = row.comparison
    return _range(found.ratio, found.ratio_low, found.ratio_high, ".1f")


def _range(ratio: float, low: float | None, high: float | None, digits: str) -> str:
    """``21 (16 to 27)``, in percent."""
    middle, *ends = (
        format(100 * (one - 1), f"z{digits}") for one in (ratio, low, high) if one is not None
    )
    if len(ends) < 2:
        return middle
    if "%" not in format_interval(low, high):
        return f"{middle} (too few runs)"
    return f"{middle} ({ends[0]} to {ends[1]})"


_PERCENT = {"CU busy": "cu_busy_percent", "matrix": "mfma_util_percent",
            "occup.": "occupancy_percent"}  # fmt: skip


def print_rocprof(analysis: SweepAnalysis, console: Console, *, top: int = 5) -> None:
    """Print the `top` GEMMs that took most time under rocprofv3; nothing where it recorded none."""
    kernels = [
        one for point in analysis.points for one in point.rocprof.kernels if is_gemm(one.kernel)
    ]
    if not kernels:
        return
    print_table(rocprof_gemms(kernels, top=top), console)
    note = "Percentages are of the time of a kernel; figures are medians over points and ranks."
    if any(one.is_serialised for one in kernels):
        note += (
            " Kernels run one after the other while rocprofv3 counts: these µs are not those of "
            "the training."
        )
    print_sentences([note], console)


def rocprof_gemms(kernels: Iterable[RocprofKernel], *, top: int) -> Table:
    """The `top` kernels by time, one row per kernel and grid."""
    groups = grouped(kernels, lambda one: (one.kernel, one.workgroups))
    order = sorted(
        groups.items(), key=lambda item: -sum(one.count * (one.median_us or 0) for one in item[1])
    )
    columns: tuple[str | Column, ...] = (
        "under rocprofv3", number("grid", "{:.0f}"), number("µs", "{:,.1f}"),
        *(number(name, "{:.1f} %") for name in _PERCENT), number("VGPR", "{:.0f}"),
        number("LDS KiB", "{:.0f}"),
    )  # fmt: skip
    rows = [
        [_short(kernel), workgroups, _middle(one.median_us for one in same),
         *(_middle(getattr(one.metrics, name) for one in same) for name in _PERCENT.values()),
         _middle(one.vgprs for one in same),
         _middle(None if one.lds_bytes is None else one.lds_bytes / 1024 for one in same)]
        for (kernel, workgroups), same in order[:top]
    ]  # fmt: skip
    return shown_table("GEMMs under rocprofv3", *columns, rows=rows)


def _middle(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _short(kernel: str) -> str:
    """``hipblaslt 256x208x64 nn bf16``, else the beginning of the name, in 29 characters."""
    facts = classify(kernel)
    if facts.family and facts.tile:
        tile = "x".join(map(str, facts.tile))
        found = (facts.family, tile, facts.layout or "", facts.dtype or "")
        return " ".join(filter(None, found))[:29]
    short = facts.short or kernel
    return short if len(short) <= 29 else f"{short[:28]}…"
