"""A unit comes close to its limit, and none is at it."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import NEAR, REACHED, Facts
from gemmetry.counters.diagnosis.model import Claim, Confidence, Gate, NotCounted
from gemmetry.counters.diagnosis.roof_claims import roof_claim
from gemmetry.counters.diagnosis.rule import Rule

_LIKELY = 70.0
"""Percent from which the unit is more likely the reason than the latencies that remain."""


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    near = facts.busiest(at_least=NEAR)
    if any(value.value >= REACHED for _, value in near):
        return
    unlisted = facts.unlisted
    if unlisted is not None and NEAR <= unlisted.value < REACHED:
        yield NotCounted(
            "other_roof", f"which unit makes {unlisted.metric} {unlisted.value:.0f} %",
            facts.collect(sections=["ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"]),
        )  # fmt: skip
    for unit, value in sorted(near, key=lambda one: (one[0].rank == 2, -one[1].value))[:1]:
        is_likely = value.value >= _LIKELY and not facts.lacks_parents
        yield roof_claim(facts, unit, value, Confidence.MEDIUM if is_likely else Confidence.LOW)


RULE = Rule(
    gate=Gate.NEAR_ROOF,
    verdicts={},
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent"),
    threshold=f"{NEAR:.0f} % of the peak rate over the whole launch; {_LIKELY:.0f} % for more than "
    "a low confidence",
    threshold_source="NVIDIA's rule SOLBottleneck: below 60 % of both peaks, latency is the limit",
    judge=_judge,
)
