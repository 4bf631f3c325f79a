"""Operations on the padding of tiles."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, percent
from gemmetry.counters.diagnosis.model import Claim, Confidence, CounterEvidence, Gate, Rule

_RATIO = 1.05
_CAUSES = 2.0


def _judge(facts: Facts) -> Iterator[Claim]:
    for check in facts.work_checks:
        if check.verdict != "padding" or not check.measured or not check.expected:
            continue
        ratio = check.measured / check.expected
        if ratio >= _RATIO:
            yield Claim(
                id="padding",
                claim=f"{percent(1 - 1 / ratio)} of the operations are on padding: {check.reason}",
                evidence=[
                    CounterEvidence("operations", check.measured, "", "operations counted"),
                    CounterEvidence("2·M·N·K", check.expected, "", "the shape"),
                ],
                weight=1 - 1 / ratio,
                confidence=Confidence.HIGH,
                remedy="Choose tiles that divide the shape, or smaller ones.",
                ceiling=f"at most {ratio:.3g}× fewer operations",
                units=frozenset({"tensor", "fma", "fp64", "fp16"}),
                stalls=frozenset({"gmma", "math_pipe_throttle"}),
                explains=ratio >= _CAUSES,
            )


RULE = Rule(
    gate=Gate.COST,
    verdicts={"padding": "tiles cover more than the shape"},
    needs=("tensor_ops_bf16", "vector_ops_fp32"),
    threshold=f"{_RATIO:g} times 2·M·N·K, where padded tiles explain it; the cause of a limit from "
    f"{_CAUSES:g} times",
    threshold_source="model of the work",
    judge=_judge,
)
