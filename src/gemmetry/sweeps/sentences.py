"""Figures of sweeps as texts, the same on terminals and pages.

The answers of a sweep's analysis in sentences with numbers, for terminals and pages.

What a comparison of sweeps shows, in sentences with numbers, for terminals and pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmetry.domain.units import (
    counted,
    format_change,
    format_interval,
    format_memory,
    format_percent,
    noun_for,
)
from gemmetry.results.texts import elide
from gemmetry.statistics.comparison import Difference
from gemmetry.sweeps.comparison import (
    KIND,
    ComparedSweep,
    RowGroup,
    SweepComparison,
    SweepRow,
    configuration_of,
)
from gemmetry.sweeps.model import SweepConfiguration
from gemmetry.sweeps.rows import GemmKind
from gemmetry.traces.names import KernelKind, classify

PARTS = {
    "compute_ms": "compute",
    "slowed_compute_ms": "slowed compute",
    "exposed_comm_ms": "exposed communication",
    "exposed_copy_ms": "exposed copies",
    "idle_ms": "idle",
}
"""Key of a part of the step -> its name."""

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


_MOST_LEFT_OUT = 3

_KERNEL = 32
"""Characters of a kernel's name in a label: the ends, which differ between tiles."""


def point_label(entry: Entry) -> str:
    """``256 threads, 8 channels, repeat 2`` of an entry of ``analysis.json``."""
    repeat = entry.get("repeat", 1)
    return configuration_of(entry).label + (f", repeat {repeat}" if repeat > 1 else "")


def marked_label(entry: Entry) -> str:
    """The point, with what sets it apart from those that are compared: ``... (failed)``."""
    mark = entry["outcome"].replace("_", " ")
    if mark == "ok" and entry.get("left_out"):
        mark = "incomplete"
    return point_label(entry) + ("" if mark == "ok" else f" ({mark})")


def left_out_text(points: Sequence[Entry]) -> str:
    """Points that are not compared, each with the reason; of many, the first ones."""
    listed = "; ".join(f"{point_label(one)} ({one['reason']})" for one in points[:_MOST_LEFT_OUT])
    more = len(points) - _MOST_LEFT_OUT
    return listed + (f"; and {more} more" if more > 0 else "")


def gemm_label(entry: Entry, among: Iterable[Entry] = ()) -> str:
    """The sizes of a GEMM, and whether the kernel only sums what others multiplied; the kernel's
    name where the sizes are not known, and after them where `among` has another kernel of them.
    So for the format and the layouts, where `among` has the same sizes with others."""
    kernel = entry["kernel"]
    shape = GemmKind(kernel=kernel, **{name: entry[name] for name in KIND[1:5]}).shape
    if not shape:
        return str(kernel)
    is_helper = classify(kernel).kind is KernelKind.GEMM_REDUCTION
    label = shape + (" (sum of slices)" if is_helper else "")
    same = [entry, *(one for one in among
                     if all(one.get(name) == entry[name] for name in KIND[1:5]))]  # fmt: skip
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
    same sizes."""
    if "kernel" in row.what:
        return gemm_label(row.what, [one.what for one in among if "kernel" in one.what])
    return collective_label(row.what) if "op" in row.what else ""


def longer(ratio: float) -> str:
    """``3.1 % longer`` of the ratio 1.031, ``3.1 % less`` of 0.969."""
    if ratio >= _MOST_PERCENT:
        return f"{ratio:,.0f} times as long"
    return f"{abs(100 * (ratio - 1)):.1f} % {'longer' if ratio >= 1 else 'less'}"


def interval_text(low: float | None, high: float | None) -> str:
    """`` (+1.2 % to +4.3 %)``; "" without an interval."""
    text = format_interval(low, high)
    return f" ({text})" if text else ""


def change_text(row: SweepRow) -> str:
    """The change of a row in percent with its interval."""
    found = row.comparison
    return format_change(found.ratio) + interval_text(found.ratio_low, found.ratio_high)


def figure_text(value: float, unit: str) -> str:
    """A figure with its unit and sensible digits."""
    if unit == "×":
        return f"{value:.3f}×"
    return f"{value:,.{0 if value >= 100 and unit == 'µs' else 2}f} {unit}"


Entry = Mapping[str, Any]

_VERDICTS = {
    "faster": ", which is shown",
    "slower": ", which is noise",
    "no difference shown": "; no difference is shown",
    "undecided": ", which is undecided",
}
"""Verdict of the best point against the next one -> the end of the sentence."""

_SHOWN = ("slower", "faster")

_MOST_STRAGGLERS = 5
"""Stragglers after the worst that are listed."""


def sentences(document: Entry) -> list[str]:
    """What the sweep shows.

    Args:
        document: the content of ``analysis.json``.
    """
    return [text for _, text in answers(document)]


def answers(document: Entry) -> list[tuple[str, str]]:
    """The sentences, each with its topic."""
    points = document["points"]
    by_topic = {
        "Traces": [_traces(points, document.get("source", "traces"))],
        "Best point": [*_best(document["best"]), *_left_out(document["best"])],
        "Cost of overlap": _overlap(document["pooled_gemms"]),
        "Stragglers": _stragglers(points),
        "Settings": _settings(document.get("settings", [])),
        "Effect on the step": _effects(document.get("effects", []), document.get("settings", [])),
    }
    return [(topic, text) for topic, texts in by_topic.items() for text in texts]


def _traces(points: Sequence[Entry], source: str) -> str:
    traced = [len(one["ranks"]) for one in points if one["ranks"]]
    have = noun_for(len(traced), "has", "have")
    return (
        f"{len(traced)} of {counted(len(points), 'point')} {have} {source}: {sum(traced)} in all."
    )


def _best(best: Entry) -> list[str]:
    if best["step_ms"] is None:
        return []
    chosen, second = configuration_of(best), best["next"]
    start = f"Shortest step: {best['step_ms']:.2f} ms"
    if chosen != SweepConfiguration():
        start += f" with {chosen.label}"
    if second is None:
        return [f"{start}, the only configuration with steps."]
    rest = f"the next best, {configuration_of(second).label}, takes {longer(second['ratio'])}"
    rest += interval_text(second["ratio_ci_low"], second["ratio_ci_high"])
    note = f": {second['note']}" if second["note"] else ""
    return [f"{start}; {rest}{_VERDICTS[best['verdict']]}{note}."]


def _left_out(best: Entry) -> list[str]:
    """The points whose steps do not take part in the choice."""
    found = best.get("left_out")
    return [f"Left out of the choice: {left_out_text(found)}."] if found else []


def slowed_gemms(document: Entry) -> list[Entry]:
    """GEMMs of a point that are shown to be slowed, those that cost most per step first."""
    found = [one for one in document["pooled_gemms"] if one["verdict"] == "slower"]
    return sorted(found, key=lambda one: -(one["cost_ms_per_step"] or 0))


def _overlap(gemms: Sequence[Entry]) -> list[str]:
    slowed = slowed_gemms({"pooled_gemms": gemms})
    judged = sum(one["slowdown_ci_low"] is not None for one in gemms)
    lost = sum(one["verdict"] == "no control group" for one in gemms)
    found = []
    if slowed:
        gemm = slowed[0]
        cost = gemm["cost_ms_per_step"]
        slowdown = format_change(gemm["slowdown"])
        slowdown += interval_text(gemm["slowdown_ci_low"], gemm["slowdown_ci_high"])
        found.append(
            f"Communication slows {len(slowed)} of {counted(judged, 'GEMM')} that could be judged. "
            f"The most expensive is {gemm_label(gemm, gemms)} with {point_label(gemm)}: "
            f"{gemm['alone_median_us']:,.0f} µs alone, {gemm['overlapped_median_us']:,.0f} µs next "
            f"to communication, {slowdown}"
            + ("." if cost is None else f", {cost:.2f} ms of each step.")
        )
    elif judged:
        all_judged = counted(judged, "GEMM")
        found.append(f"Communication is shown to slow none of {all_judged} that could be judged.")
    if lost:
        found.append(
            f"{counted(lost, 'GEMM')} always ran next to communication, so there is nothing to "
            f"compare {noun_for(lost, 'it', 'them')} with; the same workload on one rank (gemmetry "
            "sweep run … --nproc 1) would show it."
        )
    return found


def _stragglers(points: Sequence[Entry]) -> list[str]:
    found = [(point, one) for point in points for one in point["stragglers"]]
    shown = [(point, one) for point, one in found if one["is_straggler"]]
    if not shown:
        return [_no_straggler(found)] if found else []
    point, worst = max(shown, key=lambda item: item[1]["lost_us"] or 0)
    text = (
        f"With {point_label(point)}, rank {worst['rank']} delays the others: it enters "
        f"{format_percent(worst['last_share'])} of {_its_collectives(worst)} last"
    )
    since = worst["since_step"]
    text += "" if since is None else f", from step {since} on"
    if worst["lost_in"]:
        lost = worst["lost_us"]
        text += f", and loses {'time' if lost is None else f'{lost / 1000:.2f} ms of each step'}"
        text += f" in {worst['lost_in']}"
    others = sorted(
        ((p, one) for p, one in shown if one is not worst),
        key=lambda item: -(item[1]["lost_us"] or 0),
    )
    if not others:
        return [f"{text}."]
    listed = [_straggler(*one) for one in others[:_MOST_STRAGGLERS]]
    more = len(others) - len(listed)
    listed += [f"{more} more"] if more else []
    return [f"{text}.", f"Further stragglers: {'; '.join(listed)}."]


def _straggler(point: Entry, rank: Entry) -> str:
    """``rank 3 with 256 threads, 8 channels (4.20 ms of each step)``."""
    lost = rank["lost_us"]
    size = (
        f"last in {format_percent(rank['last_share'])}"
        if lost is None
        else (f"{lost / 1000:.2f} ms of each step")
    )
    return f"rank {rank['rank']} with {point_label(point)} ({size})"


def _its_collectives(rank: Entry) -> str:
    count = rank.get("collectives")
    return "the collectives" if count is None else f"its {counted(count, 'collective')}"


def _no_straggler(found: Sequence[tuple[Entry, Entry]]) -> str:
    text = "No rank is shown to delay the others"
    points = {id(point): point for point, _ in found}
    open_ones = [point for point, one in found if one.get("verdict") == "undecided"]
    count = len({id(point) for point in open_ones})
    if not count:
        return f"{text}."
    steps = max(point["step_ms"]["n"] for point in open_ones)
    return (
        f"{text}; at {count} of {counted(len(points), 'point')} it is undecided after "
        f"{counted(steps, 'step')}: record more."
    )


def _settings(settings: Sequence[Entry]) -> list[str]:
    """Those without effect, each by its reason; else that all are in effect."""
    found = [one["reason"] for one in settings if one["verdict"] != "in effect"]
    effective = [one["name"] for one in settings if one["verdict"] == "in effect"]
    if effective:
        found.append(f"Took effect in every point: {', '.join(effective)}.")
    return found


def _effects(effects: Sequence[Entry], settings: Sequence[Entry]) -> list[str]:
    """One sentence for each setting: its largest effect that is shown, else that there is none, or
    that it is undecided. The latter two are left out of a setting that changed nothing."""
    without = {one["name"] for one in settings if one["verdict"] == "no effect"}
    by_name: dict[str, list[Entry]] = {}
    for one in effects:
        if one["name"] not in without or one["verdict"] in _SHOWN:
            by_name.setdefault(one["name"], []).append(one)
    return [_effect(name, found) for name, found in by_name.items()]


def _effect(name: str, effects: Sequence[Entry]) -> str:
    shown = [one for one in effects if one["verdict"] in _SHOWN]
    undecided = [one for one in effects if one["verdict"] == "undecided"]
    chosen = shown or undecided or effects
    one = max(chosen, key=lambda effect: max(effect["ratio"], 1 / effect["ratio"]))
    start = (
        f"The step depends on {name}"
        if shown
        else f"Whether the step depends on {name} is undecided"
        if undecided
        else f"The step is not shown to depend on {name}"
    )
    change = format_change(one["ratio"]) + interval_text(one["ratio_ci_low"], one["ratio_ci_high"])
    return (
        f"{start}: {change} from {one['before']} to {one['after']}, over "
        f"{counted(one['pairs'], 'pair')} of points that differ in nothing else."
    )


_MOST_LISTED = 4
_WHOLE = "whole trace"

_ENDS = {
    Difference.SLOWER: ", which is shown",
    Difference.FASTER: ", which is shown",
    Difference.NONE_SHOWN: "; no difference is shown",
    Difference.UNDECIDED: ", which is undecided",
}


def change_sentences(comparison: SweepComparison, candidate: ComparedSweep) -> list[str]:
    """What differs between a candidate and the first sweep."""
    return [text for _, text in change_answers(comparison, candidate)]


def change_answers(comparison: SweepComparison, candidate: ComparedSweep) -> list[tuple[str, str]]:
    """The sentences, each with its topic."""
    first, other = comparison.label, candidate.label
    if candidate.is_same:
        return [("Runs", f"{other} holds the same runs as {first}: nothing can differ.")]
    by_topic = {
        "Workbooks": _workbooks(candidate),
        "Points": _points(candidate, first, other),
        "Best point": [_changes_best(row, first, other) for row in candidate.of(RowGroup.WHOLE)
                       if row.configuration],
        "Steps": [_mean(candidate, row, first, other) for row in candidate.of(RowGroup.WHOLE)
                  if not row.configuration]
        + _counts(candidate),
        "Parts of the step": _part(candidate),
        "GEMMs": _most_changed(candidate, RowGroup.GEMMS, "GEMM"),
        "Collectives": _most_changed(candidate, RowGroup.COLLECTIVES, "collective"),
    }  # fmt: skip
    return [(topic, text) for topic, texts in by_topic.items() for text in texts]


def _workbooks(candidate: ComparedSweep) -> list[str]:
    """That there are no steps to compare, where only workbooks are left."""
    if not any(_noun(row) == _WHOLE for row in candidate.of(RowGroup.WHOLE)):
        return []
    return [
        "Workbooks show no steps: whole traces are compared, which may have different numbers of "
        "steps."
    ]


def _points(candidate: ComparedSweep, first: str, other: str) -> list[str]:
    """Those that only one of the sweeps has, or that fail now."""
    if not candidate.has_common_points:
        return [
            f"{first} and {other} have no point in common ({first}: "
            f"{_listed(candidate.only_first)}; {other}: {_listed(candidate.only_candidate)}), so "
            "only their best points are compared."
        ]
    found = []
    if candidate.lost:
        found.append(
            f"Compared in {first}, but failed or incomplete in {other}: {_listed(candidate.lost)}."
        )
    for label, only in ((first, candidate.only_first), (other, candidate.only_candidate)):
        if only:
            found.append(f"Only in {label}: {_listed(only)}.")
    for label in (first, other):
        of_sweep = [one for sweep, one in candidate.left_out if sweep == label]
        if of_sweep:
            found.append(f"Left out in {label}: {left_out_text(of_sweep)}.")
    return found


def _listed(configurations: Sequence[SweepConfiguration]) -> str:
    labels = [one.label for one in configurations[:_MOST_LISTED]]
    more = len(configurations) - len(labels)
    return "; ".join(labels) + (f" and {more} more" if more else "")


def _end(row: SweepRow) -> str:
    return _ENDS[row.verdict] + (f": {row.note}" if row.note else "")


def _mean(candidate: ComparedSweep, row: SweepRow, first: str, other: str) -> str:
    points = candidate.of(RowGroup.STEP)
    is_shown = row.verdict in (Difference.SLOWER, Difference.FASTER)
    end = _end(row)
    if is_shown and not any(one.verdict is row.verdict for one in points):
        end = ", which the points show together, though none of them alone"
    return (
        f"Over all points that both have, the {_noun(row)} changes by {change_text(row)} on "
        f"average from {first} to {other}{end}."
    )


def _noun(row: SweepRow) -> str:
    return _WHOLE if "trace" in row.measure else "step"


def _changes_best(row: SweepRow, first: str, other: str) -> str:
    assert row.configuration is not None  # the best point is one
    where = row.other_configuration.label if row.other_configuration else "the same point"
    return (
        f"The best point takes {row.before:.2f} ms in {first} with {row.configuration.label}, and "
        f"{row.after:.2f} ms in {other} with {where}: {change_text(row)}{_end(row)}."
    )


def _counts(candidate: ComparedSweep) -> list[str]:
    rows = candidate.of(RowGroup.STEP)
    if not rows:
        return []
    counts = [(verdict, [row for row in rows if row.verdict is verdict]) for verdict in Difference]
    texts = [f"{len(of)} {verdict}" for verdict, of in counts if of]
    shown = [row for row in rows if row.verdict in (Difference.SLOWER, Difference.FASTER)]
    text = f"Of {counted(len(rows), 'point')} that both have: {', '.join(texts)}"
    if not shown:
        note = f": {rows[0].note}" if rows[0].verdict is Difference.UNDECIDED else ""
        return [f"{text}{note}."]
    worst = max(shown, key=_size)
    assert worst.configuration is not None  # rows of steps have one
    return [
        f"{text}; the largest change is {change_text(worst)} with {worst.configuration.label}, "
        f"from {worst.before:.2f} to {worst.after:.2f} ms."
    ]


def _part(candidate: ComparedSweep) -> list[str]:
    """The part of the step that changes it most, where one is shown to."""
    rows = [row for row in candidate.of(RowGroup.PARTS)
            if row.verdict in (Difference.SLOWER, Difference.FASTER)]  # fmt: skip
    if not rows:
        return []
    row = max(rows, key=_size)
    assert row.configuration is not None  # rows of parts have one
    changes = "lengthens" if row.verdict is Difference.SLOWER else "shortens"
    found, noun = row.comparison, _noun(candidate.of(RowGroup.WHOLE)[0])
    sizes = sorted(abs(100 * (one - 1)) for one in found.interval or ())
    interval = f" ({sizes[0]:.1f} to {sizes[1]:.1f} %)" if sizes else ""
    return [
        f"The part that changes most is {PARTS[row.measure]}: with {row.configuration.label} it "
        f"{changes} the {noun} by {abs(100 * (found.ratio - 1)):.1f} %{interval}, from "
        f"{row.before:.2f} to {row.after:.2f} ms."
    ]


def _most_changed(candidate: ComparedSweep, group: RowGroup, noun: str) -> list[str]:
    rows = candidate.of(group)
    shown = [row for row in rows if row.verdict in (Difference.SLOWER, Difference.FASTER)]
    if not rows:
        return []
    undecided = sum(row.verdict is Difference.UNDECIDED for row in rows)
    if not shown:
        compared, are = counted(len(rows), "comparison"), noun_for(undecided, "is", "are")
        rest = f"; {undecided} of {compared} {are} undecided" if undecided else ""
        return [f"No {noun} is shown to be slower or faster{rest}."]
    row = max(shown, key=_size)
    assert row.configuration is not None  # rows of GEMMs and collectives have one
    measure = MEASURES[row.measure]
    found = row.comparison
    others = len(shown) - 1
    more = f" {counted(others, 'more comparison shows', 'more comparisons show')} a difference."
    return [
        f"The {noun} that changed most is {row_label(row, rows)} with {row.configuration.label}: "
        f"{measure} {figure_text(row.before, row.unit)} → {figure_text(row.after, row.unit)}, "
        f"{format_change(found.ratio)}{interval_text(found.ratio_low, found.ratio_high)}."
        + (more if others else "")
    ]


def _size(row: SweepRow) -> float:
    ratio = row.comparison.ratio
    return max(ratio, 1 / ratio)
