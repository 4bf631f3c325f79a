"""A clock below the highest of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import SM, UNITS, Facts, percent
from gemmetry.counters.diagnosis.model import Claim, Confidence, Gate, Rule

_SHARE = 0.9


def _judge(facts: Facts) -> Iterator[Claim]:
    clock, highest = facts.get("sm_clock"), facts.get("sm_clock_max")
    if clock is None or highest is None or not 0 < clock.value < _SHARE * highest.value:
        return
    yield Claim(
        id="low_clock",
        claim=f"The clock is {clock.value / 1e9:.2f} GHz, {percent(clock.value / highest.value)} "
        "of the highest",
        evidence=[clock, highest],
        weight=1 - clock.value / highest.value,
        confidence=Confidence.HIGH,
        against="The profiler may have fixed it: --clock-control base does",
        remedy="Look at the power and temperature limits, and collect with --clock-control none.",
        ceiling=_ceiling(facts, highest.value / clock.value),
        units=frozenset(name for name, unit in UNITS.items() if SM in unit.parents),
    )


def _ceiling(facts: Facts, factor: float) -> str:
    """Device memory has a clock of its own."""
    memory = facts.utilisation.get("dram")
    if memory is None or memory.value <= 0 or factor * memory.value <= 100:
        return f"at most {factor:.2f}×"
    return f"at most {100 / memory.value:.2f}×, when device memory is at its limit"


RULE = Rule(
    gate=Gate.COST,
    verdicts={"low_clock": "multiprocessors ran below their highest clock"},
    needs=("sm_clock", "sm_clock_max"),
    threshold=f"{percent(_SHARE)} of the highest clock",
    threshold_source="the clock for which datasheets give the rate of tensor cores is 92 % of the "
    "highest on an H100 SXM (1830 of 1980 MHz)",
    judge=_judge,
)
