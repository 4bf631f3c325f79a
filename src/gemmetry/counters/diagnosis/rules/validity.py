"""Counters that mean nothing: communication kernels, contradictions, and reports of zeros."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import MEMORY, NEAR, SM, UNITS, Facts
from gemmetry.counters.diagnosis.model import (
    CANNOT_TELL,
    Claim,
    Confidence,
    CounterEvidence,
    Gate,
    Rule,
)
from gemmetry.traces.names import KernelKind

_ALL = frozenset(Gate) - {Gate.VALIDITY}
_COUNTERS = ("sm__", "smsp__", "l1tex__", "lts__", "dram__", "fbpa__", "gpu__", "idc__", "SQ_",
             "TCC_", "TCP_", "TA_", "TD_", "FETCH_SIZE", "WRITE_SIZE")  # fmt: skip
"""How names of counters begin."""
_OF_TIME = ("cycles_elapsed", "time_", "maximum", "peak_sustained.", "per_second")
"""Parts of the names of metrics that are not zero although nothing was counted."""
_MANY = 5
"""Units of which a kernel uses one."""
_SLACK = 10.0
"""Percentage points that passes of one kernel can differ by."""


def _judge(facts: Facts) -> Iterator[Claim]:
    if facts.kernel.kind is KernelKind.COLLECTIVE:
        yield _void(
            "By its name it is a communication kernel. Replayed alone, as profilers do, such a "
            "kernel waits for ranks that are not there",
            remedy="Record a trace for communication, or collect with --replay-mode range.",
        )
        return
    wrong = [one for one in facts.utilisation.values() if not 0 <= one.value <= 105]
    if wrong:
        yield _void(
            f"The counters contradict each other: {wrong[0].metric} is {wrong[0].value:.0f} %",
            evidence=wrong[:1],
            remedy="Collect again, and with --clock-control base if clocks changed.",
        )
        return
    for name, value in facts.utilisation.items():
        parents = () if facts.is_amd else UNITS[name].parents
        wholes = [one for one in map(facts.metric, parents) if one is not None]
        whole = max(wholes, key=lambda one: one.value, default=None)
        is_part = whole is not None and "throughput" not in value.metric
        if is_part and whole is not None and value.value > max(whole.value + _SLACK, NEAR):
            yield _void(
                f"The counters contradict each other: {value.metric} is {value.value:.0f} %, "
                f"but {whole.metric}, of which it is a part, {whole.value:.0f} %",
                evidence=[value, whole],
                remedy="Collect again; passes saw different executions of the kernel.",
            )
            return
    if _all_zero(facts):
        yield _void(
            "All units show zero percent, although a kernel ran",
            remedy="Check that the driver and the profiler support this GPU.",
        )


def _all_zero(facts: Facts) -> bool:
    """Whether nothing was counted. A single unit may do nothing, and a summary rounds to two
    digits: either every counter is zero, or all of the many units that a report lists."""
    counters = [
        value for name, value in facts.launch.metrics().items()
        if name.startswith(_COUNTERS) and not any(word in name for word in _OF_TIME)
    ]  # fmt: skip
    if not any(counters):
        return bool(facts.utilisation)
    wholes = [one.value for one in map(facts.metric, (SM, MEMORY)) if one is not None]
    known = [one.value for one in facts.utilisation.values()]
    is_whole = not facts.is_amd and not facts.launch.table.sections
    return is_whole and len(known) >= _MANY and len(wholes) == 2 and not any(known + wholes)


def _void(claim: str, *, remedy: str, evidence: list[CounterEvidence] | None = None) -> Claim:
    return Claim(
        id=CANNOT_TELL, claim=claim, evidence=evidence or [], weight=1.0,
        confidence=Confidence.HIGH, remedy=remedy, voids=_ALL,
        because="the counters do not describe how the kernel usually runs",
    )  # fmt: skip


RULE = Rule(
    gate=Gate.VALIDITY,
    verdicts={CANNOT_TELL: "the counters do not show what bounds the kernel; the reason is given"},
    needs=(),
    threshold="a collective by its name; a part above its whole; more than 105 % of a peak; zeros",
    threshold_source="definition of the metrics; issues of NCCL and of rocprofiler-sdk about "
    "kernels that are replayed alone, and about GPUs whose counters read zero",
    judge=_judge,
)
