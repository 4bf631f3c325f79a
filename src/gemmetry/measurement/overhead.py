"""Overhead of the harness: the duration that timing an empty call reports."""

from __future__ import annotations

import statistics

from gemmetry.domain.contracts import Device

_REPEATS = 50


def measure_overhead(device: Device) -> float:
    """Median duration in ns that ``device.time_calls`` reports for an empty call.

    It is an upper bound of the time that reading the clock and calling through Python add to every
    sample; ``marks.py`` marks measurements where it exceeds 1 %.
    """
    durations, _ = device.time_calls([_nothing] * _REPEATS)
    return statistics.median(durations)


def _nothing() -> None:
    return None
