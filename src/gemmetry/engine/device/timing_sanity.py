"""Checks that a measured time is possible: no kernel is faster than its device, and the clock by
which its process measures runs as fast as that of the parent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gemmetry.domain import units
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Measurement, Trait
from gemmetry.domain.target import Target
from gemmetry.hardware.speed_limit import SpeedLimit, speed_limit
from gemmetry.measurement.rounds import Round
from gemmetry.verification.checks import CheckOutcome, CheckResult

NAME = "timing_sanity"

CLOCK_RATIO = 2.0
PARENT_S, PROCESS_S = (0.5, 0.05), (0.02, 0.001)
"""Two clocks disagree if one of them counts :data:`CLOCK_RATIO` times the seconds of the other and
more: the first number in all, and the second in each round. The parent may notice a reply a tenth
of a second late on a busy machine; within one process clocks are read microseconds apart."""


def timing_check(
    target: Target,
    operation: Operation,
    declared: Collection[Trait],
    measurement: Measurement,
    rounds: Sequence[Round] = (),
) -> CheckResult:
    """The check ``timing_sanity``: failed where the median is shorter than the device's compute
    peak allows (``hardware/speed_limit.py``), so that a launch that did not do its work, or whose
    work was not timed, is reported as ``wrong`` instead of fast; and where clocks disagree."""
    flaw = _flaw_of_clocks([one for one in rounds if one.waited_s > 0 and one.elapsed_s > 0])
    if flaw:
        return CheckResult(NAME, CheckOutcome.FAILED, f"its clock cannot be right: {flaw}")
    limit = speed_limit(target, operation, declared)
    if not isinstance(limit, SpeedLimit):
        return CheckResult(NAME, CheckOutcome.NOT_APPLICABLE, limit)
    shortest_ns = operation.flops / limit.flops_per_s * 1e9
    if measurement.median_ns >= shortest_ns:
        return CheckResult(NAME)
    speed = "no time at all"
    if measurement.median_ns > 0:
        speed = f"{operation.flops / measurement.median_ns / 1e3:.4g} TFLOP/s"
    return CheckResult(
        NAME,
        CheckOutcome.FAILED,
        f"faster than the device: {units.format_ns(measurement.median_ns)} per launch is "
        f"{speed}, and no correct kernel takes less than {units.format_ns(shortest_ns)}: "
        f"{limit.source}",
    )


def _flaw_of_clocks(rounds: Sequence[Round]) -> str:
    """Which clocks disagree about the same rounds; "" if none do."""
    waited_s = sum(one.waited_s for one in rounds)
    elapsed_s = sum(one.elapsed_s for one in rounds)
    timed = [one for one in rounds if one.method != "simulated"]
    samples_s = sum(sum(one.samples_ns) * one.launches_per_sample for one in timed) / 1e9
    around_s = sum(one.seconds for one in timed if one.method == "wall_clock")
    for less, less_s, more, more_s, allowed_s in (
        ("the process counted", elapsed_s, "its parent waited", waited_s, PARENT_S),
        ("the parent waited", waited_s, "the samples add up to", samples_s, PARENT_S),
        (
            "the samples add up to",
            samples_s,
            "the process counted",
            around_s,
            PROCESS_S,
        ),
    ):
        once_s, each_s = allowed_s
        if more_s > CLOCK_RATIO * less_s + once_s + each_s * len(rounds):
            return f"{less} {less_s:.3g} s, and {more} {more_s:.3g} s, for {len(rounds)} rounds"
    return ""
