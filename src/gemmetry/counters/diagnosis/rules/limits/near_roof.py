"""A unit comes close to its limit, and none is at it."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import NEAR, REACHED, TENSOR_LEAD, Facts
from gemmetry.counters.diagnosis.model import Claim, Confidence, CounterEvidence, Gate, NotCounted
from gemmetry.counters.diagnosis.roof_claims import roof_claim
from gemmetry.counters.diagnosis.rule import Rule
from gemmetry.counters.diagnosis.units import Unit

_LIKELY = 70.0
"""Percent from which the unit is more likely the reason than the latencies that remain."""


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    near = facts.busiest(at_least=NEAR)
    if any(value.value >= REACHED for _, value in near):
        return
    unlisted = facts.unlisted
    top = max((value.value for _, value in near), default=0.0)
    if unlisted is not None and unlisted.value >= NEAR and unlisted.value + 1 > top:
        yield NotCounted(
            "other_roof", f"which unit makes {unlisted.metric} {unlisted.value:.0f} %",
            facts.collect(sections=["ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"]),
        )  # fmt: skip
    for unit, value in sorted(near, key=_nearness)[:1]:
        is_likely = value.value >= _LIKELY and not facts.lacks_parents
        yield roof_claim(facts, unit, value, Confidence.MEDIUM if is_likely else Confidence.LOW)


def _nearness(one: tuple[Unit, CounterEvidence]) -> tuple[bool, float]:
    unit, value = one
    return unit.rank == 2, -(value.value + (TENSOR_LEAD if unit.rank == 0 else unit.lead))


RULE = Rule(
    gate=Gate.NEAR_ROOF,
    verdicts={},
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent"),
    threshold=f"{NEAR:.0f} % of the peak rate over the whole launch; {_LIKELY:.0f} % for more than "
    f"a low confidence; tensor cores, unless another unit is {TENSOR_LEAD:.0f} points busier",
    threshold_source="NVIDIA's rule SOLBottleneck: below 60 % of both peaks, latency is the limit",
    judge=_judge,
)
