"""A unit of the GPU works at its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmetry.counters.diagnosis import facts as amd
from gemmetry.counters.diagnosis.facts import (
    CLEAR,
    MAY_BE_UNLISTED,
    MEMORY,
    NEAR,
    REACHED,
    SM,
    Facts,
    Unit,
)
from gemmetry.counters.diagnosis.gates import ROOF_VERDICTS, at_its_rate, roof_claim
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Gate,
    NotCounted,
    Rule,
)

_VOIDS = frozenset({Gate.GRID, Gate.NEAR_ROOF, Gate.LATENCY})


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    open_units = facts.open_units()
    for unit in open_units:
        yield NotCounted(unit.verdict, _question(facts, unit), facts.unit_flags(unit))
    reached = facts.busiest(at_least=REACHED)
    unlisted = facts.unlisted
    if unlisted is not None and unlisted.value >= REACHED and _is_first(unlisted, reached):
        if unlisted.metric in (SM, MEMORY):
            yield NotCounted(
                "other_roof", at_its_rate(unlisted),
                facts.collect(sections=["SpeedOfLight", "ComputeWorkloadAnalysis",
                                        "MemoryWorkloadAnalysis"]),
            )  # fmt: skip
        elif not open_units:
            yield Claim(
                id="other_roof",
                claim=f"{unlisted.metric} is at {unlisted.value:.1f} % of its peak",
                evidence=[unlisted],
                weight=0.995,
                ceiling=f"at most {100 / unlisted.value:.2f}×",
                voids=_VOIDS,
                because="warps wait because this unit is busy",
                units=frozenset({"other"}),
            )
    for unit, value in reached:
        is_clear = value.value >= CLEAR
        # Of the units that come second, any that was not counted may be busier.
        may_be_second = unit.rank > 0 and (facts.lacks_parents or bool(facts.rivals))
        confidence = Confidence.HIGH if is_clear else Confidence.MEDIUM
        if may_be_second:
            confidence = Confidence.MEDIUM if is_clear else Confidence.LOW
        yield roof_claim(
            facts, unit, value, confidence,
            voids=_VOIDS, doubt=_doubt(facts) if may_be_second else "",
        )  # fmt: skip


def _doubt(facts: Facts) -> str:
    """Which units may be busier: those that were not counted, and those that are not listed."""
    rivals = [facts.named(unit) for unit in facts.rivals]
    doubts = [f"Not counted, and possibly busier: {', '.join(rivals)}"] if rivals else []
    return ". ".join([*doubts, *([MAY_BE_UNLISTED] if facts.lacks_parents else [])])


def _is_first(unlisted: CounterEvidence, reached: Sequence[tuple[Unit, CounterEvidence]]) -> bool:
    """Whether a unit that is not listed comes before those at their limit."""
    if not reached or reached[0][0].rank == 2:
        return True
    return reached[0][0].rank == 1 and unlisted.value + 1 >= reached[0][1].value


def _question(facts: Facts, unit: Unit) -> str:
    """What has to be known; one question for all units of a whole that is known."""
    top = max((one.value for one in facts.utilisation.values()), default=0.0)
    for whole in unit.parents:
        known = facts.metric(whole)
        if known is not None and known.value >= NEAR and known.value > top + 1:
            return at_its_rate(known)
    question = amd.open_question(facts, unit.id) if facts.is_amd else None
    return question[0] if question is not None else f"how busy {facts.named(unit)} is"


RULE = Rule(
    gate=Gate.ROOF,
    verdicts={
        **ROOF_VERDICTS,
        "other_roof": "a unit that is not listed here works at its limit",
    },
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent", "dram_percent",
           "l2_percent", "shared_pipe_percent", "lsu_requests_percent"),
    threshold=f"{REACHED:.0f} % of the peak rate over the whole launch; tensor cores come before "
    "other units, and instruction issue after them; the busiest of the others decides",
    threshold_source="NVIDIA's rule SOLBottleneck: above 80 %, work has to move to another unit",
    judge=_judge,
)  # fmt: skip
