"""Inputs that are read from device memory more than once."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts
from gemmetry.counters.diagnosis.model import Claim, Confidence, CounterEvidence, Gate, Rule

_RATIO = 1.5
_CAUSES = 2.0
_BUSY = 30.0
"""Percent of the bandwidth below which its bytes cause no waits."""


def _judge(facts: Facts) -> Iterator[Claim]:
    for check in facts.work_checks:
        if check.verdict != "reread" or not check.measured or not check.expected:
            continue
        ratio = check.measured / check.expected
        busy = facts.utilisation.get("dram")
        if ratio >= _RATIO:
            yield Claim(
                id="l2_reuse",
                claim=f"Device memory moves {ratio:.3g} times the bytes of the inputs and the "
                "result",
                evidence=[
                    CounterEvidence("bytes moved", check.measured, "byte",
                             "dram_read_bytes + dram_write_bytes"),
                    CounterEvidence("compulsory bytes", check.expected, "byte", "the shape"),
                ],
                weight=1 - 1 / ratio,
                confidence=Confidence.MEDIUM,
                remedy="Let blocks that run together share rows and columns: another order of "
                "tiles, or larger tiles.",
                ceiling=f"at most {ratio:.3g}× less traffic",
                units=frozenset({"dram"}),
                stalls=frozenset({"long_scoreboard", "any"}),
                explains=ratio >= _CAUSES and (busy is None or busy.value >= _BUSY),
            )  # fmt: skip


RULE = Rule(
    gate=Gate.COST,
    verdicts={"l2_reuse": "device memory moves the inputs more than once"},
    needs=("dram_read_bytes", "dram_write_bytes"),
    threshold=f"{_RATIO:g} times the compulsory bytes; the cause of a limit from {_CAUSES:g} times",
    threshold_source="the compulsory traffic of the shape: each input and the result once",
    judge=_judge,
)
