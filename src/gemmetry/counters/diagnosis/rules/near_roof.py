"""A unit comes close to its limit, and none is at it."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import NEAR, REACHED, TENSOR_LEAD, Facts, Unit
from gemmetry.counters.diagnosis.gates import at_its_rate, roof_claim
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Gate,
    NotCounted,
    Rule,
)

LIKELY = 70.0
"""Percent from which the unit is more likely the reason than the latencies that remain."""

_UNSPECIFIC = "any", "inst_issue"
"""Waits on AMD: the counters do not show for what."""
_BY_DESIGN = "barrier", "long_scoreboard", "tma", "sleeping"
"""What warps that start copies and multiplications, and do nothing else, wait for."""


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    near = facts.busiest(at_least=NEAR)
    if any(value.value >= REACHED for _, value in near):
        return
    unlisted = facts.unlisted
    top = max((value.value for _, value in near), default=0.0)
    if unlisted is not None and unlisted.value >= NEAR and unlisted.value + 1 > top:
        yield NotCounted(
            "other_roof", at_its_rate(unlisted),
            facts.collect(sections=["ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"]),
        )  # fmt: skip
    for unit, value in sorted(near, key=_nearness)[:1]:
        is_likely = value.value >= LIKELY and not facts.lacks_parents
        yield roof_claim(
            facts, unit, value, Confidence.MEDIUM if is_likely else Confidence.LOW,
            agrees=frozenset(f"latency_{name}" for name in _waits(facts, unit, is_likely)),
        )  # fmt: skip


def _waits(facts: Facts, unit: Unit, is_likely: bool) -> Iterator[str]:
    """What warps wait for if `unit` is the limit."""
    yield from _UNSPECIFIC
    yield from unit.queues
    if is_likely:
        yield from unit.waits
    if unit.rank == 0 and facts.uses_async_copies is not False:
        yield from _BY_DESIGN


def _nearness(one: tuple[Unit, CounterEvidence]) -> tuple[bool, float]:
    unit, value = one
    return unit.rank == 2, -(value.value + (TENSOR_LEAD if unit.rank == 0 else unit.lead))


RULE = Rule(
    gate=Gate.NEAR_ROOF,
    verdicts={},
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent"),
    threshold=f"{NEAR:.0f} % of the peak rate over the whole launch; {LIKELY:.0f} % for more than "
    f"a low confidence; tensor cores, unless another unit is {TENSOR_LEAD:.0f} points busier. A "
    "stall with a higher confidence that the unit does not cause comes first",
    threshold_source="NVIDIA's rule SOLBottleneck: below 60 % of both peaks, latency is the limit",
    judge=_judge,
)
