"""The ladder as tables: one row per rung and problem, one per planned phase and problem."""

from __future__ import annotations

from typing import Any

from gemmetry.analysis.dispatches.ladder import Gain, Ladder, PhaseResult, Rung
from gemmetry.domain.tables import Column, ColumnType, Direction, Table

_NUMBER, _INTEGER = ColumnType.NUMBER, ColumnType.INTEGER
_HIGHER = Direction.HIGHER_IS_BETTER

_RUNGS = (
    Column("operation", required=True),
    Column("rung", _INTEGER, description="place on the ladder", required=True),
    Column("name", required=True),
    Column("adds", description="what it does that the rung before does not", required=True),
    Column("configuration", description="the fastest that was measured", required=True),
    Column("outcome", required=True),
    Column("reason", description="why it has no time"),
    Column("verification", required=True),
    Column("tflops", _NUMBER, "TFLOP/s", "speed at the median", _HIGHER),
    Column("tflops_low", _NUMBER, "TFLOP/s", "lower end of the median's 95 % interval"),
    Column("tflops_high", _NUMBER, "TFLOP/s", "upper end"),
    Column("gain", _NUMBER, description="speed over that of the rung before", direction=_HIGHER),
    Column("gain_low", _NUMBER, description="lower end of its interval"),
    Column("gain_high", _NUMBER, description="upper end"),
    Column("gain_over", description="the rung before, of those measured on the same problem"),
    Column("gain_verdict", description="what the interval shows"),
    Column("of_library", _NUMBER, description="speed over that of the library", direction=_HIGHER),
    Column("of_library_low", _NUMBER, description="lower end of its interval"),
    Column("of_library_high", _NUMBER, description="upper end"),
    Column("library", description="the library's fastest dispatch"),
    Column("library_verdict", description="what the interval shows"),
    Column(
        "of_best",
        _NUMBER,
        description="speed over that of the fastest of the library's algorithms",
        direction=_HIGHER,
    ),
    Column("of_best_low", _NUMBER, description="lower end of its interval"),
    Column("of_best_high", _NUMBER, description="upper end"),
    Column("best", description="that dispatch, and how many algorithms were timed"),
    Column("best_verdict", description="what the interval shows"),
    Column("roofline_fraction", _NUMBER, description="share of the roof", direction=_HIGHER),
    Column("sm_clock_hz", _NUMBER, "Hz", "clock during sampling"),
    Column("power_w", _NUMBER, "W", "power during sampling"),
    Column("accuracy_class", description="the strictest class whose bound its errors meet"),
    Column("registers", _INTEGER, description="of a thread"),
    Column("spill_bytes", _INTEGER, "B", "spilled registers of a thread"),
    Column("shared_memory_bytes", _INTEGER, "B", "shared memory of a block"),
    Column("marks", ColumnType.TEXTS, description="reasons to trust the time less", required=True),
)

_PHASES = (
    Column("phase", required=True),
    Column("operation", required=True),
    Column("first_rung", _INTEGER, required=True),
    Column("last_rung", _INTEGER, required=True),
    Column("expected_low", _NUMBER, description="the gain that was planned", required=True),
    Column("expected_high", _NUMBER, required=True),
    Column("gain", _NUMBER, description="the gain that was measured", required=True),
    Column("gain_low", _NUMBER, description="lower end of its interval"),
    Column("gain_high", _NUMBER, description="upper end"),
    Column("verdict", description="the interval compared with the plan", required=True),
)


def ladder_tables(ladder: Ladder) -> tuple[Table, Table]:
    """The rungs and the phases."""
    return (
        Table("ladder", _RUNGS, [_rung(one) for one in ladder.rungs]),
        Table("phases", _PHASES, [_phase(one) for one in ladder.phases]),
    )


def _rung(rung: Rung) -> tuple[Any, ...]:
    record, facts = rung.record, rung.record.facts
    state = record.measurement.telemetry if record.measurement else None
    return (
        record.operation,
        rung.step.number,
        rung.step.name,
        rung.step.adds,
        record.configuration,
        str(record.outcome),
        record.reason or None,
        str(record.verdict.status),
        rung.tflops,
        *(rung.tflops_interval or (None, None)),
        *_gain(rung.gain),
        *_gain(rung.of_library),
        *_gain(rung.of_best),
        record.roofline_fraction,
        state.sm_clock_hz if state else None,
        state.power_w if state else None,
        record.verdict.accuracy_class,
        facts.registers,
        facts.spill_bytes,
        facts.shared_memory_bytes,
        list(record.measurement.marks) if record.measurement else [],
    )


def _gain(gain: Gain | None) -> tuple[Any, ...]:
    if gain is None:
        return (None,) * 5
    return (gain.ratio, *(gain.interval or (None, None)), gain.over, str(gain.verdict))


def _phase(found: PhaseResult) -> tuple[Any, ...]:
    phase = found.phase
    return (
        phase.name,
        found.operation,
        phase.first,
        phase.last,
        *phase.expected,
        found.gain.ratio,
        *(found.gain.interval or (None, None)),
        str(found.expectation),
    )
