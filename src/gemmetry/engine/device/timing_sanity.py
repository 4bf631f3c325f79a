"""Checks that a measured time is possible: no kernel is faster than its device."""

from __future__ import annotations

from collections.abc import Collection

from gemmetry.domain import units
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Measurement, Trait
from gemmetry.domain.target import Target
from gemmetry.hardware.speed_limit import SpeedLimit, speed_limit
from gemmetry.verification.checks import CheckOutcome, CheckResult

NAME = "timing_sanity"


def timing_check(
    target: Target, operation: Operation, declared: Collection[Trait], measurement: Measurement
) -> CheckResult:
    """The check ``timing_sanity``: failed where the median is shorter than the device's compute
    peak allows (``hardware/speed_limit.py``), so that a launch that did not do its work, or whose
    work was not timed, is reported as ``wrong`` instead of fast."""
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
