"""Claims that a unit is at its limit, or near it."""

from __future__ import annotations

from collections.abc import Mapping

from gemmetry.counters.diagnosis.facts import REACHED, Facts
from gemmetry.counters.diagnosis.model import Claim, Confidence, CounterEvidence, Gate
from gemmetry.counters.diagnosis.units import SUFFIX, UNITS, Unit

_SHARED = "shared_memory_roof"

ROOF_VERDICTS: Mapping[str, str] = {
    **{unit.verdict: f"{unit.name} works at its limit, or near it" for unit in UNITS.values()},
    "l1_roof": "the data stage of the L1 cache works at its limit, or near it",
    _SHARED: "shared memory (AMD: the LDS) works at its limit, or near it",
    "lsu_requests": "the load/store unit accepts no more requests, or nearly none",
    "instruction_issue": "the schedulers issue an instruction in nearly every cycle",
}
_RANKED = (1.0, 0.99, 0.5)
"""Weight of a unit at its limit, by rank."""


def roof_claim(
    facts: Facts, unit: Unit, value: CounterEvidence, confidence: Confidence, *,
    voids: frozenset[Gate] = frozenset(), agrees: frozenset[str] = frozenset(), doubt: str = "",
) -> Claim:  # fmt: skip
    """That `unit` is busy for `value` percent of the launch; `doubt` speaks against it."""
    name, verdict, is_known = facts.named(unit), unit.verdict, True
    if unit.id == "l1":
        verdict, name, is_known = _of_l1(facts, value)
    is_reached = value.value >= REACHED
    share = f"{value.value:.1f} %"
    at = "is at" if is_reached else "is the nearest limit, at"
    because = f"{name} is busy for {share} of the time: warps wait because it is, and "
    against = doubt
    if not is_reached:
        against = f"{100 - value.value:.0f} % of its rate is unused; latencies matter, too"
    return Claim(
        id=verdict,
        claim=f"{name[0].upper()}{name[1:]} {at} {share} of its peak rate{_filled(facts, unit)}",
        evidence=_evidence(facts, unit, value),
        weight=_RANKED[unit.rank] * (value.value + unit.lead) / 100 if unit.rank else 1.0,
        confidence=confidence if is_known else Confidence.LOW,
        against=against,
        remedy=unit.remedy,
        ceiling=f"at most {100 / value.value:.2f}×, when nothing else limits it",
        voids=voids,
        because=because + "more of them would not make it faster",
        units=frozenset({unit.id}),
        agrees=agrees,
    )


def at_its_rate(whole: CounterEvidence) -> str:
    """The question which unit is as busy as the whole that it is a part of."""
    return f"which unit works at {whole.value:.0f} % of its peak rate ({whole.metric})"


def _filled(facts: Facts, unit: Unit) -> str:
    """The pipe that takes most of the instructions that are issued."""
    if unit.id != "issue":
        return ""
    pipes = [
        (value, UNITS[name].name) for name, value in facts.utilisation.items()
        if name != unit.id and UNITS[name].parents == unit.parents
    ]  # fmt: skip
    if not pipes:
        return ""
    value, name = max(pipes, key=lambda one: one[0].value)
    return f"; the busiest pipe is {name}, at {value.value:.1f} %"


def _of_l1(facts: Facts, value: CounterEvidence) -> tuple[str, str, bool]:
    """The verdict about the data stage of L1, its name, and whether it is known what loads it."""
    if facts.is_amd:
        return _SHARED, "the LDS", True
    shared = facts.shared_percent
    if shared is None:
        return "l1_roof", "the L1 cache and shared memory", False
    if 2 * shared >= value.value:
        return _SHARED, "shared memory", True
    return "l1_roof", "the L1 cache", True


def _evidence(facts: Facts, unit: Unit, value: CounterEvidence) -> list[CounterEvidence]:
    """`value`, and for tensor cores their use while there were warps."""
    found = [value]
    if unit.id == "tensor" and (active := facts.get("tensor_pipe_active_percent")) is not None:
        found.append(active)
    others = [facts.metric(name + SUFFIX) for name in unit.metrics]
    agreeing = [
        one for one in others
        if one is not None and one.metric != value.metric and one.value >= REACHED
    ]  # fmt: skip
    return [*found, *agreeing[:1]]
