"""Compares what the rules say, gate by gate: the verdict, its cause, and what they make void.

Claims that a unit is at its limit, or near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmetry.counters.facts import MAY_BE_UNLISTED, REACHED, SHORT_NS, SUFFIX, UNITS, Facts, Unit
from gemmetry.counters.model import (
    CANNOT_TELL,
    HIGH,
    LOW,
    Claim,
    Confidence,
    CounterEvidence,
    Finding,
    Gate,
    LaunchDiagnosis,
    LaunchVerdict,
    NotCounted,
    Rule,
    Suppressed,
    all_rules,
    uncapitalised,
)
from gemmetry.counters.work import OPERATIONS, GemmWork, work_in_name
from gemmetry.domain.units import format_ns, plural
from gemmetry.formats.counters.launches import ProfiledLaunch

_DECIDING = (Gate.ROOF, Gate.NEAR_ROOF)
"""Gates without which later ones decide nothing: a stall means something else where a unit is at
its limit."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """Judgements of all rules about a launch."""

    claims: Sequence[tuple[Rule, Claim]]
    dismissed: Sequence[Suppressed]
    undecided: Sequence[tuple[Rule, NotCounted]]


def diagnose(launch: ProfiledLaunch, work: GemmWork | None = None) -> LaunchDiagnosis:
    """Diagnose what bounds a launch.

    Args:
        work: the operation of the launch; None: as far as the kernel's name shows it.
    """
    facts = Facts(launch, work or work_in_name(launch.name))
    judged = _judge(facts)
    lead = _lead(judged)
    open_rules = _open(judged, lead)
    causes = _causes(judged, lead, facts) if lead is not None else []
    # Also where the work is another one, stalls mean nothing at a limit.
    limit = next((claim for _, claim in judged.claims if claim.voids), lead)
    cap, doubts = _doubts(facts, judged, lead)
    found: list[Finding] = []
    suppressed: list[Suppressed] = []
    for rule, claim in [*causes, *_others(judged, lead, causes)]:
        reason = _void(limit, claim, rule) if not open_rules and claim is not limit else ""
        if reason:
            suppressed.append(Suppressed(claim.id, claim.claim, reason))
            continue
        highest = LOW if open_rules else cap
        doubt = doubts if claim is lead else ""
        found.append(_finding(facts, rule, claim, highest, doubt))
    suppressed.extend(judged.dismissed)
    if open_rules or lead is None:
        verdict, first = _no_verdict(facts, open_rules, lead)
        found.insert(0, first)
    else:
        cause = f". {_kind_of(causes[0][1])}: {uncapitalised(causes[0][1].claim)}" if causes else ""
        verdict = LaunchVerdict(lead.id, lead.claim + cause, lead.confidence.at_most(cap))
    return LaunchDiagnosis(
        kernel=launch.name,
        device=launch.info.device or launch.info.capability,
        duration_ns=facts.duration_ns,
        work_check=facts.work_checks,
        verdict=verdict,
        findings=found,
        suppressed=suppressed,
    )


def _judge(facts: Facts) -> _Judged:
    said = [(rule, one) for rule in all_rules() for one in rule.judge(facts)]
    claims = [(rule, one) for rule, one in said if isinstance(one, Claim)]
    return _Judged(
        sorted(claims, key=lambda pair: (pair[0].gate, -pair[1].weight)),
        [one for _, one in said if isinstance(one, Suppressed)],
        [(rule, one) for rule, one in said if isinstance(one, NotCounted)],
    )


def _lead(judged: _Judged) -> Claim | None:
    """The claim of the first gate that has one. A limit nearby gives way to a wait with a higher
    confidence that it does not cause, and multiprocessors without work to one that costs more."""
    limits = [(rule.gate, claim) for rule, claim in judged.claims if rule.gate < Gate.COST]
    if not limits:
        return None
    nearest, first = limits[0]
    wait = next((claim for gate, claim in limits if gate is Gate.LATENCY), None)
    if nearest is Gate.GRID and wait is not None and not first.voids:
        is_near = any(gate is Gate.NEAR_ROOF for gate, _ in limits)
        return wait if not is_near and _costs_more(wait, first) else first
    if nearest is not Gate.NEAR_ROOF or wait is None or wait.id in first.agrees:
        return first
    return wait if wait.confidence.exceeds(first.confidence) else first


def _costs_more(wait: Claim, idle: Claim) -> bool:
    """Whether multiprocessors that work lose more time to `wait` than is lost by those without
    work."""
    is_sure = not idle.confidence.exceeds(wait.confidence)
    return is_sure and (1 - idle.weight) * wait.weight > idle.weight


def _gate(judged: _Judged, lead: Claim | None) -> Gate:
    return next((rule.gate for rule, claim in judged.claims if claim is lead), Gate.COST)


def _open(judged: _Judged, lead: Claim | None) -> list[NotCounted]:
    """Gaps that leave the verdict open: limits that may be reached but were not counted; without
    any claim, whatever was not counted."""
    gate = _gate(judged, lead)
    if gate < Gate.ROOF:
        return []
    if lead is None:
        return [one for _, one in judged.undecided]
    return [one for rule, one in judged.undecided if rule.gate in _DECIDING and rule.gate <= gate]


def _doubts(facts: Facts, judged: _Judged, lead: Claim | None) -> tuple[Confidence, str]:
    """The highest confidence that a claim can have, and why."""
    gate, doubts = _gate(judged, lead), []
    # What warps wait for can outweigh a limit nearby, and multiprocessors without work.
    can_give_way = gate is Gate.NEAR_ROOF or (lead is not None and not lead.voids)
    last = Gate.LATENCY if can_give_way and gate < Gate.LATENCY else gate
    duration = facts.duration_ns
    if duration is None:
        doubts.append("The duration was not recorded")
    elif duration < SHORT_NS:
        doubts.append(f"It runs for {format_ns(duration)}, of which starting is a large part")
    if facts.lacks_parents and Gate.ROOF < gate < Gate.COST:
        doubts.append(MAY_BE_UNLISTED)
    doubts.extend(
        f"Not counted: {one.missing}"
        for rule, one in judged.undecided
        if rule.gate not in _DECIDING and rule.gate <= last < Gate.COST
    )
    return (LOW if doubts else HIGH), ". ".join(doubts)


def _causes(judged: _Judged, lead: Claim, facts: Facts) -> list[tuple[Rule, Claim]]:
    """Costs that are the reason for the limit."""
    gate = _gate(judged, lead)
    stalls = lead.stalls
    if gate is Gate.NEAR_ROOF and facts.stalls is not None:
        stalls = frozenset(name for name, _ in facts.stalls.ranked()[:1])
    return [
        (rule, claim)
        for rule, claim in judged.claims
        if rule.gate is Gate.COST
        and claim.explains
        and gate in (Gate.ROOF, Gate.NEAR_ROOF, Gate.LATENCY)
        and (claim.units & lead.units or claim.stalls & stalls)
    ]


def _others(
    judged: _Judged, lead: Claim | None, causes: Sequence[tuple[Rule, Claim]]
) -> list[tuple[Rule, Claim]]:
    """The claim of the verdict, what concerns the same unit, then the rest; a second claim with one
    id is left out."""
    seen = {claim.id for _, claim in causes}
    found = []
    for rule, claim in judged.claims:
        if claim.id not in seen or claim is lead:
            seen.add(claim.id)
            found.append((rule, claim))
    units: frozenset[str] = frozenset() if lead is None else lead.units
    return sorted(found, key=lambda pair: (pair[1] is not lead, not pair[1].units & units))


def _void(limit: Claim | None, claim: Claim, rule: Rule) -> str:
    """Reason why a limit makes a claim void; "" where it does not."""
    if limit is None or not limit.voids:
        return ""
    if rule.gate in limit.voids:
        return limit.because
    if rule.gate is not Gate.COST or claim.units & limit.units:
        return ""
    if not claim.units:
        return limit.because
    return "it does not load the unit that is at its limit" if limit.units else ""


def _finding(facts: Facts, rule: Rule, claim: Claim, cap: Confidence, doubts: str) -> Finding:
    is_counted = any(one.quantity == OPERATIONS and one.measured for one in facts.work_checks)
    missing = [
        one
        for one in facts.lacks(*rule.needs)
        if not (is_counted and one.startswith(("tensor_ops_", "vector_ops_")))
    ]
    return Finding(
        id=claim.id,
        claim=claim.claim,
        evidence=claim.evidence,
        threshold=rule.threshold,
        threshold_source=rule.threshold_source,
        confidence=claim.confidence.at_most(cap),
        against=". ".join(one.rstrip(".") for one in (claim.against, doubts) if one),
        remedy=claim.remedy,
        ceiling=claim.ceiling,
        collect=facts.collect(missing) if missing else "",
    )


def _no_verdict(
    facts: Facts, open_rules: Sequence[NotCounted], lead: Claim | None
) -> tuple[LaunchVerdict, Finding]:
    missing = list(dict.fromkeys(one.missing for one in open_rules))
    rest = f", and {plural(len(missing) - 3, 'other fact')}" if len(missing) > 3 else ""
    claim = "Nothing in the report bounds the kernel visibly"
    if missing:
        claim = f"The report does not show {'; '.join(missing[:3])}{rest}"
    if lead is not None:
        claim += f". Without that, this would be the verdict: {uncapitalised(lead.claim)}"
    finding = Finding(
        id=CANNOT_TELL, claim=claim, evidence=(),
        threshold="what a verdict rests on has to be counted",
        threshold_source="order of the gates",
        confidence=HIGH,
        remedy=_remedy(facts),
        collect=_merged(flag for one in open_rules for flag in _flags(one.collect)),
    )  # fmt: skip
    return LaunchVerdict(CANNOT_TELL, claim, HIGH), finding


def _remedy(facts: Facts) -> str:
    """Way to get the missing counters."""
    if facts.is_amd:
        return "Collect what is missing: gemmetry counters collect distributes it over passes."
    if facts.launch.table.sections:
        return "Export the whole report: ncu --import REPORT --page raw --csv."
    return "Collect what is missing."


_LISTS = {"--metrics": ",", "--pmc": " "}
"""Options that are given once, with a list: of several --pmc, rocprofv3 takes the last one."""


def _merged(options: Iterable[str]) -> str:
    """Each option once, and each list as one option."""
    found: dict[str, dict[str, None]] = {}
    for option in options:
        name, _, values = option.partition(" ")
        if name in _LISTS:
            found.setdefault(name, {}).update(dict.fromkeys(values.split(_LISTS[name])))
        else:
            found[option] = {}
    return " ".join(
        f"{name} {_LISTS[name].join(values)}" if values else name for name, values in found.items()
    )


def _flags(text: str) -> list[str]:
    """``--section A --metrics b,c`` as its options."""
    return [f"--{part.strip()}" for part in text.split("--") if part.strip()]


def _kind_of(cause: Claim) -> str:
    """Confidence in a cause, as the beginning of a sentence."""
    return "The cause" if cause.confidence is HIGH else "A probable cause"


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
    """Claim that `unit` is busy for `value` percent of the launch; `doubt` speaks against it."""
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
        confidence=confidence if is_known else LOW,
        against=against,
        remedy=unit.remedy,
        ceiling=f"at most {100 / value.value:.2f}× at this clock, when nothing else limits it",
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
