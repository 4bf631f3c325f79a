"""What warps wait for, where no unit is near its limit."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, percent
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Gate,
    NotCounted,
    Rule,
)
from gemmetry.counters.diagnosis.stalls import ISSUING, MEANINGS, REASONS, StallShares

_SHARE = 0.3
"""Share of the time between two instructions from which a reason counts (NVIDIA's CPIStall)."""
_MOST = 0.5
_ATTRIBUTED = 0.5
"""Share of a reason's samples at one kind of instruction from which that is its cause."""

_AT = {
    ("barrier", "WARPGROUP.DEPBAR"): (
        "gmma", "the tensor cores: the samples are at WARPGROUP.DEPBAR, not at a barrier"
    ),
    ("long_scoreboard", "SYNCS"): (
        "tma", "copies of the tensor memory accelerator: the samples are at SYNCS"
    ),
    ("long_scoreboard", "NANOSLEEP"): (
        "tma", "copies of the tensor memory accelerator: the samples are at NANOSLEEP"
    ),
    ("long_scoreboard", "LDL"): ("local_memory", "local memory: the samples are at users of LDL"),
}  # fmt: skip
"""Reason and opcode -> what is really waited for, as samples of a product on an H200 show."""


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    stalls = facts.stalls
    ranked = stalls.ranked() if stalls is not None else []
    if stalls is None or not ranked:
        yield NotCounted(
            "latency", "what warps wait for",
            facts.collect(["wait_percent"] if facts.is_amd else [], ["WarpStateStats"]),
        )  # fmt: skip
        return
    reason, share = ranked[0]
    if stalls.missing or stalls.unknown > share:
        named = ", ".join(stalls.missing) or f"{percent(stalls.unknown)} of their time"
        yield NotCounted(
            "latency", f"what the other stall reasons are ({named})",
            facts.collect(sections=["WarpStateStats"]),
        )  # fmt: skip
        return
    second = ranked[1][1] if ranked[1:] else 0.0
    yield _claim(facts, stalls, reason, share, max(second, stalls.unknown))


def _claim(
    facts: Facts, stalls: StallShares, reason: str, share: float, second: float
) -> Claim:  # fmt: skip
    meaning = MEANINGS[reason]
    evidence = [
        CounterEvidence(
            f"share of {name}", 100 * part, "%", f"{stalls.metrics[name]} ÷ {stalls.total}"
        )
        for name, part in stalls.ranked()[:3]
        if part >= 0.05
    ]
    issue = facts.get("issue_active")
    if issue is not None:
        evidence.append(issue)
    others = ", ".join(
        f"{name.replace('_', ' ')} {percent(part)}"
        for name, part in stalls.ranked()[1:4]
        if part >= 0.1
    )
    if share < _SHARE:
        return Claim(
            id="latency_mixed",
            claim=f"{facts.warps} wait for several things; the most, {percent(share)} of the time, "
            f"{meaning.meaning}",
            evidence=evidence,
            weight=share,
            confidence=Confidence.LOW,
            against=f"also: {others}" if others else "",
            remedy=meaning.remedy,
        )
    is_clear = share >= _MOST and share >= 2 * second
    confidence = Confidence.HIGH if is_clear else Confidence.MEDIUM
    name, what, attributed = _attribute(facts, stalls, reason)
    if not attributed:
        confidence = Confidence.LOW
    return Claim(
        id=f"latency_{name}",
        claim=f"{facts.warps} spend {percent(share)} of their time waiting "
        f"{what or meaning.meaning}",
        evidence=evidence,
        weight=share,
        confidence=confidence,
        against=f"also: {others}" if others else "",
        remedy=MEANINGS[name].remedy if name in MEANINGS else meaning.remedy,
        ceiling=facts.at_most(math.inf)
        if facts.nearest
        else "unknown: it depends on which wait comes next",
        stalls=frozenset({reason}),
    )


def _attribute(facts: Facts, stalls: StallShares, reason: str) -> tuple[str, str, bool]:
    """The cause of a reason by the instructions at which it was sampled, its words, and whether
    the reason can be believed."""
    opcodes = stalls.opcodes.get(reason, {})
    total = sum(opcodes.values())
    for (of_reason, opcode), (cause, words) in _AT.items():
        if of_reason != reason or not total:
            continue
        at = sum(count for name, count in opcodes.items() if name.startswith(opcode))
        if at >= _ATTRIBUTED * total:
            return cause, f"for {words}", True
    tensor = facts.utilisation.get("tensor")
    is_ambiguous = (
        reason == "barrier"
        and not total
        and facts.uses_async_copies is not False
        and (tensor is None or tensor.value > 1)
    )
    return reason, "", not is_ambiguous


RULE = Rule(
    gate=Gate.LATENCY,
    verdicts={
        **{
            f"latency_{reason}": f"warps wait {MEANINGS[reason].meaning}"
            for reason in REASONS
            if reason not in ISSUING
        },
        "latency_tma": "warps wait for copies of the tensor memory accelerator (by samples)",
        "latency_local_memory": "warps wait for local memory (by samples)",
        "latency_any": "AMD: waves wait; the counters do not show for what",
        "latency_inst_issue": "AMD: waves wait to issue an instruction",
        "latency_mixed": "warps wait for several things, none of which dominates",
    },
    needs=("warp_latency", "stall_barrier", "stall_long_scoreboard", "issue_active"),
    threshold=f"a stall reason takes {percent(_SHARE)} of the time between two instructions of a "
    f"warp (high confidence: {percent(_MOST)}, and twice the next); shares are ratios over "
    "their sum, without the states selected and not_selected",
    threshold_source="NVIDIA's rule CPIStall: more than 30 %, with issue slots below 80 %",
    judge=_judge,
)
