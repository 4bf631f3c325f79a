"""The answers of a sweep's analysis in sentences with numbers, for terminals and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import configuration_of
from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.domain.units import counted, format_change, format_percent, noun_for
from gemmetry.reports.sweeps.values import (
    gemm_label,
    interval_text,
    left_out_text,
    longer,
    point_label,
)

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
