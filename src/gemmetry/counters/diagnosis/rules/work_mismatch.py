"""The kernel did other work than was described."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, percent
from gemmetry.counters.diagnosis.model import (
    WORK_MISMATCH,
    Claim,
    Confidence,
    CounterEvidence,
    Gate,
    NotCounted,
    Rule,
)
from gemmetry.counters.diagnosis.work import MISMATCHES, TOLERANCE, counters_of

_NEEDS = ("tensor_ops_bf16", "tensor_ops_fp16", "tensor_ops_tf32", "tensor_ops_fp8",
          "vector_ops_fp32")  # fmt: skip


def _judge(facts: Facts) -> Iterator[Claim | NotCounted]:
    for check in facts.work_checks:
        if check.quantity != "operations" or check.expected is None:
            continue
        if check.measured is None:
            yield NotCounted(
                WORK_MISMATCH, "whether the kernel did the work described",
                facts.collect(facts.lacks(*counters_of(facts.work))),
            )  # fmt: skip
        elif check.verdict in MISMATCHES:
            yield Claim(
                id=WORK_MISMATCH,
                claim=f"The kernel did other work than described: {check.reason}",
                evidence=[
                    CounterEvidence("operations", check.measured, "", "operations counted"),
                    CounterEvidence("2·M·N·K", check.expected, "", "the shape"),
                ],
                weight=1.0,
                confidence=Confidence.HIGH,
                remedy="Check the shape and the format, then which algorithm was chosen.",
            )


RULE = Rule(
    gate=Gate.WORK,
    verdicts={WORK_MISMATCH: "the operations counted are not those of the shape or the format"},
    needs=_NEEDS,
    threshold=f"operations differ by more than {percent(TOLERANCE)} from 2·M·N·K and from what "
    "padded tiles explain, or are on the path of another format",
    threshold_source="model of the work; counts on an H200 agree to the last digit",
    judge=_judge,
)
