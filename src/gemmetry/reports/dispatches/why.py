"""What is known about why a dispatch is as fast as it is, in one line."""

from __future__ import annotations

from gemmetry.domain.record import BuildFacts, Record
from gemmetry.domain.units import format_bytes, format_percent
from gemmetry.reports.labels import format_ratio
from gemmetry.reports.texts import printable


def why_line(record: Record, best: Record | None) -> str:
    """The instruction that computes its product, its share of the roofline, spills, the clock, and
    how the fastest dispatch of the same problem differs; "" if nothing is known.

    Args:
        best: the fastest dispatch of the problem, which may be `record`.
    """
    m = record.measurement
    if m is None:
        return ""
    parts = [*_code(record.facts, None if best is None or best is record else best.facts)]
    if record.roofline_fraction is not None:
        parts.append(f"{format_percent(record.roofline_fraction)} of the roofline")
    if m.telemetry.sm_clock_hz is not None:
        parts.append(f"at {m.telemetry.sm_clock_hz / 1e6:.0f} MHz")
    if m.telemetry.throttle_reasons:
        parts.append(f"throttled: {', '.join(m.telemetry.throttle_reasons)}")
    if best is not None and best is not record and best.measurement is not None:
        ratio = format_ratio(best.measurement.median_ns / m.median_ns) if m.median_ns > 0 else "–"
        parts.append(f"{ratio} the speed of {best.provider} {best.configuration}, the fastest here")
    return printable(" · ".join(parts))


def _code(facts: BuildFacts, best: BuildFacts | None) -> list[str]:
    parts = []
    if facts.matrix_instruction is not None:
        reached = _instruction(facts.matrix_instruction)
        other = None if best is None else best.matrix_instruction
        if other is not None and other != facts.matrix_instruction:
            reached += f" (the fastest here: {_instruction(other)})"
        parts.append(reached)
    if facts.compiled_for is not None:
        parts.append(f"compiled for {facts.compiled_for}")
    if facts.spill_bytes is not None:
        spilled = f"{format_bytes(facts.spill_bytes)} spilled per thread"
        parts.append(spilled if facts.spill_bytes else "no spills")
    return parts


def _instruction(name: str) -> str:
    return "no multiply instruction found" if name == "none" else name
