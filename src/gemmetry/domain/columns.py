"""Every column of a record, declared once: name, type, unit, description, value.

The JSON records and their schema, the tables in each format, the page ``docs/columns.md`` and the
console follow these declarations; nothing else names columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from gemmetry.domain import units
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record
from gemmetry.domain.rows import SCHEMA_VERSION as SCHEMA_VERSION
from gemmetry.domain.tables import Column, ColumnType, Direction


@dataclass(frozen=True, slots=True)
class RecordColumn(Column):
    """A column of records."""

    value: Callable[[Record, Operation], Any] = field(kw_only=True)
    """Takes the value from a record and its parsed operation; None where it does not apply."""


_even_ns = partial(units.format_ns, even=True)

_LOW, _HIGH = Direction.LOWER_IS_BETTER, Direction.HIGHER_IS_BETTER

TEXT, INTEGER, NUMBER = ColumnType.TEXT, ColumnType.INTEGER, ColumnType.NUMBER
TEXTS, MAPPING = ColumnType.TEXTS, ColumnType.MAPPING


def _measured(attribute: str) -> Callable[[Record, Operation], Any]:
    value = attrgetter(attribute)
    return lambda r, o: None if r.measurement is None else value(r.measurement)


def _telemetry(attribute: str) -> Callable[[Record, Operation], Any]:
    return _measured(f"telemetry.{attribute}")


def _energy(attribute: str) -> Callable[[Record, Operation], Any]:
    def value(record: Record, _operation: Operation) -> Any:
        energy = None if record.measurement is None else record.measurement.energy
        return None if energy is None else getattr(energy, attribute) or None

    return value


def _traced(attribute: str) -> Callable[[Record, Operation], Any]:
    value = attrgetter(attribute)
    return lambda r, o: None if r.trace is None else value(r.trace)


def _counted(attribute: str) -> Callable[[Record, Operation], Any]:
    def value(record: Record, _operation: Operation) -> Any:
        return None if record.counters is None else getattr(record.counters, attribute)

    return value


def _accuracy_class(record: Record, _operation: Operation) -> str | None:
    """None for a wrong result, whose errors do not come from rounding."""
    is_right = record.verdict.status in (Verification.PASSED, Verification.WARNED)
    return record.verdict.accuracy_class if is_right else None


def _checks(*outcomes: str) -> Callable[[Record, Operation], Any]:
    """The checks of a verdict whose text begins with one of `outcomes`; passed checks are listed by
    name only."""

    def value(record: Record, _operation: Operation) -> Any:
        found = [
            (name, text)
            for name, text in record.verdict.checks.items()
            if text.partition(":")[0] in outcomes
        ]
        return [name if text == "passed" else f"{name}: {_why(text)}" for name, text in found]

    return value


def _why(text: str) -> str:
    """``warned: why`` unchanged; ``failed: why`` and ``not applicable: why`` without the outcome,
    which the column's name already states."""
    outcome, _, why = text.partition(": ")
    return text if outcome == "warned" else why or outcome


def _marks(record: Record, _operation: Operation) -> list[str]:
    return [] if record.measurement is None else list(record.measurement.marks)


def _throttle(record: Record, _operation: Operation) -> list[str]:
    m = record.measurement
    return [] if m is None else list(m.telemetry.throttle_reasons)


def _input_digests(record: Record, _operation: Operation) -> list[str]:
    digests = {} if record.trace is None else record.trace.input_sha256
    return [f"{role}:{digest}" for role, digest in digests.items()]


def _column(
    name: str,
    kind: ColumnType,
    unit: str,
    description: str,
    value: Callable[[Record, Operation], Any],
    direction: Direction = Direction.NONE,
    format: Callable[[Any], str] | None = None,
    absent: str = "–",
    **more: Any,
) -> RecordColumn:
    return RecordColumn(
        name, kind, unit, description, direction, format, absent, value=value, **more
    )


COLUMNS: tuple[RecordColumn, ...] = (
    _column("dispatch", TEXT, "", "Operation's name, `_`, configuration's name.",
            lambda r, o: r.dispatch, required=True),
    _column("provider", TEXT, "", "Provider that computed "
        "it.", lambda r, o: r.provider, required=True),
    _column("target", TEXT, "", "Device kind and architecture, e.g. `cuda-sm_90`.",
            lambda r, o: r.target, required=True),
    _column("device", TEXT, "", "Device it ran on, e.g. `cuda:0`.", lambda r, o: r.device or None),
    _column("operation", TEXT, "", "The operation's name.", lambda r, o: r.operation,
            required=True),
    _column("configuration", TEXT, "", "The configuration's name.", lambda r, o: r.configuration,
            required=True),
    _column("kind", TEXT, "", "Kind of operation.", lambda r, o: str(o.kind), required=True),
    _column("m", INTEGER, "", "Rows of the result (implicit GEMM for conv2d).",
            lambda r, o: o.matmul_shape.m, required=True),
    _column("n", INTEGER, "", "Columns of the result.", lambda r, o: o.matmul_shape.n,
            required=True),
    _column("k", INTEGER, "", "Length of the reduction.", lambda r, o: o.matmul_shape.k,
            required=True),
    _column("batch", INTEGER, "", "Number of products.", lambda r, o: o.matmul_shape.batch,
            required=True),
    _column("lhs_dtype", TEXT, "", "Format of A.", lambda r, o: o.signature.lhs.name,
            required=True),
    _column("rhs_dtype", TEXT, "", "Format of B.", lambda r, o: o.signature.rhs.name,
            required=True),
    _column("result_dtype", TEXT, "", "Format of C.", lambda r, o: o.signature.result.name,
            required=True),
    _column("accumulator", TEXT, "", "Format of the accumulator that the operation requires.",
            lambda r, o: o.signature.accumulator.name, required=True),
    _column("layouts", TEXT, "", "Layouts of A and B (t row-major, n column-major).",
            lambda r, o: o.signature.layout_pair, required=True),
    _column("epilogue", TEXTS, "", "Fused steps, in order.",
            lambda r, o: [str(step) for step in o.signature.epilogue], required=True),
    _column("split_k_slices", INTEGER, "", "Slices of the reduction (1: not split).",
            lambda r, o: o.signature.split_k_slices, required=True),
    _column("outcome", TEXT, "", "How the dispatch ended.", lambda r, o: str(r.outcome),
            required=True, choices=tuple(map(str, Outcome))),
    _column("stage", TEXT, "", "Stage at which it ended, if the outcome is not ok.",
            lambda r, o: None if r.stage is None else str(r.stage), choices=tuple(map(str, Stage))),
    _column("reason", TEXT, "", "Reason, if the outcome is not ok.", lambda r, o: r.reason or None),
    _column("verification", TEXT, "", "passed, warned, failed or not_verified.",
            lambda r, o: str(r.verdict.status), required=True,
            choices=tuple(map(str, Verification))),
    _column("max_error_ratio", NUMBER, "", "Largest error divided by its bound (1 = on the bound).",
            lambda r, o: r.verdict.max_error_ratio, _LOW, lambda v: f"{v:.3g}"),
    _column("relative_frobenius_error", NUMBER, "", "‖C − reference‖ / ‖reference‖.",
            lambda r, o: r.verdict.relative_frobenius_error, _LOW, lambda v: f"{v:.2e}"),
    _column("signed_bias", NUMBER, "", "Mean signed error relative to the warn bound.",
            lambda r, o: r.verdict.signed_bias, Direction.NONE, lambda v: f"{v:+.2e}"),
    _column("accuracy_class", TEXT, "", "Arithmetic that is consistent with the errors of a "
        "correct result.", _accuracy_class),
    _column("checks_passed", TEXTS, "", "Checks that it passed.", _checks("passed"), required=True),
    _column("checks_failed", TEXTS, "", "Checks that failed or warned, each with the reason.",
            _checks("failed", "warned"), required=True),
    _column("checks_not_applicable", TEXTS, "", "Checks that did not apply, each with the reason.",
            _checks("not applicable"), required=True),
    _column("checks_incomplete", TEXTS, "", "Checks that were cut short, each with what is "
        "missing; what they tried was correct.", _checks("incomplete"), required=True),
    _column("properties", TEXTS, "", "What checks found that is not wrong, but worth knowing.",
            _checks("property"), required=True),
    _column("refused_shapes", INTEGER, "", "Small shapes that the checks tried and the "
        "configuration refused.", lambda r, o: r.verdict.refused_shapes, required=True),
    _column("first_bad", TEXT, "", "Index, value and expected value of the first wrong element.",
            lambda r, o: r.verdict.first_bad),
    _column("error_map", TEXTS, "", "Lines that draw where the result is wrong, the caption first.",
            lambda r, o: list(r.verdict.error_map), required=True),
    _column("evidence_path", TEXT, "", "Folder with the failing inputs and output, relative "
            "to the experiment's folder.", lambda r, o: r.verdict.evidence_path),
    _column("declared", TEXTS, "", "What the provider declares about its arithmetic.",
            lambda r, o: [str(trait) for trait in r.facts.declared], required=True),
    _column("distribution", TEXT, "", "Distribution of the inputs.", lambda r, o: r.distribution,
            required=True),
    _column("seed", INTEGER, "", "Seed of the inputs.", lambda r, o: r.seed, required=True),
    _column("zero_share", NUMBER, "", "Share of zeros among the quantised inputs.",
            lambda r, o: r.verdict.zero_share, Direction.NONE, units.format_percent),
    _column("median_ns", NUMBER, "ns", "Median duration of one launch.", _measured("median_ns"),
            _LOW, _even_ns),
    _column("ci_low_ns", NUMBER, "ns", "Lower end of the median's 95 % interval; none where there "
            "are too few samples for one.", _measured("ci_low_ns"), _LOW, _even_ns, "n/a"),
    _column("ci_high_ns", NUMBER, "ns", "Upper end of the median's 95 % interval; none where there "
            "are too few samples for one.", _measured("ci_high_ns"), _LOW, _even_ns, "n/a"),
    _column("min_ns", NUMBER, "ns", "Shortest sample, per launch.", _measured("min_ns"), _LOW,
            _even_ns),
    _column("p95_ns", NUMBER, "ns", "95th percentile of the samples, per launch.",
            _measured("p95_ns"), _LOW, _even_ns),
    _column("sample_count", INTEGER, "", "Number of samples.", _measured("sample_count")),
    _column("launches_per_sample", INTEGER, "", "Launches timed together as one sample.",
            _measured("launches_per_sample")),
    _column("rounds", INTEGER, "", "Interleaved rounds over which the samples were taken.",
            _measured("rounds")),
    _column("processes", INTEGER, "", "Processes that took the rounds.",
            _measured("processes")),
    _column("process_spread", NUMBER, "", "Range of the processes' medians divided by the median "
            "if their rounds do not overlap, otherwise 0.", _measured("process_spread"), _LOW,
            units.format_percent),
    _column("method", TEXT, "", "wall_clock, events, graph, simulated, "
        "or imported from another benchmark.", _measured("method")),
    _column("regime", TEXT, "", "burst or sustained.", _measured("regime")),
    _column("stop_reason", TEXT, "", "Why sampling ended: interval, time_budget or max_samples.",
            _measured("stop_reason")),
    _column("input_sets", INTEGER, "", "Copies of the inputs that launches rotate through.",
            _measured("input_sets")),
    _column("first_launch_ns", NUMBER, "ns", "Duration of the first launch.",
            _measured("first_launch_ns"), _LOW, _even_ns),
    _column("effective_samples", NUMBER, "", "Number of independent samples that would carry "
        "the same information, because samples of one round are "
        "similar.", _measured("effective_samples"), Direction.NONE,
            lambda v: f"{v:.0f}"),
    _column("harness_overhead_ns", NUMBER, "ns", "Time measured for an empty call, per "
        "sample.",
            _measured("harness_overhead_ns"), _LOW, _even_ns),
    _column("flops", INTEGER, "FLOP", "2·batch·M·N·K.", lambda r, o: r.flops, required=True),
    _column("bytes", INTEGER, "B", "Compulsory traffic: inputs once, result once.",
            lambda r, o: r.bytes, Direction.NONE, units.format_bytes, required=True),
    _column("gflops", NUMBER, "10⁹ FLOP/s", "FLOPs divided by the median duration.",
            lambda r, o: r.gflops, _HIGH, partial(units.format_gflops, even=True), heading="speed"),
    _column("bandwidth_gb_per_s", NUMBER, "10⁹ B/s", "Compulsory bytes divided by the median "
            "duration.", lambda r, o: r.bandwidth_gb_per_s, _HIGH, lambda v: f"{v:.3g} GB/s"),
    _column("arithmetic_intensity", NUMBER, "FLOP/B", "FLOPs divided by compulsory bytes.",
            lambda r, o: r.flops / r.bytes if r.bytes else None, Direction.NONE,
            lambda v: f"{v:.3g}"),
    _column("roofline_fraction", NUMBER, "", "Share of the roofline's attainable FLOP/s.",
            lambda r, o: r.roofline_fraction, _HIGH, lambda v: f"{100 * v:.1f} %"),
    _column("roofline_source", TEXT, "", "Source of the roofline's peaks.",
            lambda r, o: r.roofline_source or None),
    _column("sm_clock_hz", NUMBER, "Hz", "Median clock of the device's cores while sampling.",
            _telemetry("sm_clock_hz"), Direction.NONE, lambda v: f"{v / 1e6:.0f} MHz"),
    _column("power_w", NUMBER, "W", "Median power while sampling.", _telemetry("power_w"),
            Direction.NONE, lambda v: f"{v:.0f} W"),
    _column("temperature_c", NUMBER, "°C", "Median temperature while sampling.",
            _telemetry("temperature_c"), Direction.NONE, lambda v: f"{v:.0f} °C"),
    _column("throttle_reasons", TEXTS, "", "Why the clock was lowered while sampling.", _throttle,
            required=True),
    _column("energy_j", NUMBER, "J", "Median energy of one launch under sustained load, with "
            "--energy; that of the idle device is part of it.", _energy("energy_j"), _LOW,
            units.format_joules),
    _column("energy_ci_low_j", NUMBER, "J", "Lower end of that median's 95 % interval; none where "
            "there are too few windows for one.", _energy("ci_low_j"), _LOW, units.format_joules,
            "n/a"),
    _column("energy_ci_high_j", NUMBER, "J", "Upper end of that median's 95 % interval; none where "
            "there are too few windows for one.", _energy("ci_high_j"), _LOW, units.format_joules,
            "n/a"),
    _column("flops_per_j", NUMBER, "FLOP/J", "FLOPs divided by that energy.",
            lambda r, o: r.flops_per_j, _HIGH, lambda v: f"{v / 1e9:.1f} GFLOP/J"),
    _column("energy_resolution", NUMBER, "", "Relative uncertainty of the energy because the "
            "device's counter is updated seldom.", _energy("resolution"), _LOW,
            units.format_percent),
    _column("idle_power_w", NUMBER, "W", "Power before that load, half a second after other work.",
            _energy("idle_power_w"), Direction.NONE, lambda v: f"{v:.0f} W"),
    _column("energy_reason", TEXT, "", "Why the energy, or that of a process, is missing.",
            _energy("reason")),
    _column("load_average", NUMBER, "", "Runnable processes per core while sampling (CPU).",
            _telemetry("load_average"), Direction.NONE, lambda v: f"{v:.2f}"),
    _column("others_cpu_share", NUMBER, "", "Share of the processors that other programs took "
            "(CPU).", _telemetry("others_cpu_share"), Direction.NONE, units.format_percent),
    _column("run_delay_share", NUMBER, "", "Time for which threads were ready to run but had no "
        "processor, divided by the sampling time (CPU).", _telemetry("run_delay_share"), _LOW,
            units.format_percent),
    _column("processors", TEXT, "", "Processors to which the dispatch was restricted (CPU).",
            lambda r, o: r.measurement.telemetry.processors or None if r.measurement else None),
    _column("marks", TEXTS, "", "Reasons to trust the measurement less.", _marks,
            required=True),
    _column("registers", INTEGER, "", "Registers per thread.", lambda r, o: r.facts.registers,
            _LOW),
    _column("spill_bytes", INTEGER, "B", "Spilled registers per thread.",
            lambda r, o: r.facts.spill_bytes, _LOW),
    _column("shared_memory_bytes", INTEGER, "B", "Shared memory per block.",
            lambda r, o: r.facts.shared_memory_bytes),
    _column("matrix_instruction", TEXT, "", "Instruction of the product in the machine code.",
            lambda r, o: r.facts.matrix_instruction),
    _column("compiled_for", TEXT, "", "Architecture of the code, if not the target's own.",
            lambda r, o: r.facts.compiled_for),
    _column("default_configuration", TEXT, "",
            "Configuration that the provider or its compiler chose.",
            lambda r, o: r.facts.default_configuration),
    _column("algorithms_tried", INTEGER, "", "Algorithms that were timed to choose that one.",
            lambda r, o: r.facts.algorithms_tried),
    _column("workspace_bytes", INTEGER, "B", "Device memory that launches write besides C.",
            lambda r, o: r.facts.workspace_bytes),
    _column("compile_ns", INTEGER, "ns", "Compile time of this dispatch (its share of a batch).",
            lambda r, o: r.facts.compile_ns, _LOW, _even_ns),
    _column("compile_command", TEXT, "", "Command that compiles it.",
            lambda r, o: r.facts.compile_command),
    _column("run_command", TEXT, "", "Command of the provider's own benchmark tool.",
            lambda r, o: r.facts.run_command),
    _column("trace_folder", TEXT, "", "Folder of its traces, relative to the experiment's.",
            _traced("folder")),
    _column("trace_files", TEXTS, "", "Files in that folder.",
            lambda r, o: [] if r.trace is None else list(r.trace.files),
            format=lambda v: str(len(v)), required=True),
    _column("trace_operators", INTEGER, "", "CPU operators recorded, over all repeats.",
            _traced("operators")),
    _column("trace_kernels", INTEGER, "", "GPU kernels recorded, over all repeats.",
            _traced("kernels")),
    _column("input_sha256", TEXTS, "", "SHA-256 of each input's bytes, as role:digest, where "
            "traced.", _input_digests, required=True),
    _column("output_sha256", TEXT, "", "SHA-256 of the result's bytes, where traced.",
            _traced("output_sha256")),
    _column("counters_folder", TEXT, "", "Folder of its hardware counters, relative to the "
            "experiment's.", _counted("folder")),
    _column("counters_verdict", TEXT, "", "What bounds it, by its hardware counters.",
            _counted("verdict")),
    _column("counters_summary", TEXT, "", "The same as a sentence.",
            _counted("summary")),
    _column("counters_confidence", TEXT, "", "How sure that is: high, medium or low.",
            _counted("confidence")),
    _column("reproduce", TEXT, "", "Command that runs this dispatch again.",
            lambda r, o: r.reproduce or None),
    _column("environment_id", TEXT, "", "Hash of the environment it ran in.",
            lambda r, o: r.environment_id or None),
    _column("device_ids", TEXTS, "", "Which of several alike devices: the driver's "
            "identifier of a GPU, or `host/device`.", lambda r, o: list(r.device_ids),
            required=True),
    _column("tags", MAPPING, "", "Tags given with --tags.", lambda r, o: dict(r.tags),
            required=True),
)  # fmt: skip

COLUMNS_BY_NAME: dict[str, RecordColumn] = {column.name: column for column in COLUMNS}


def row(record: Record, columns: Iterable[RecordColumn] = COLUMNS) -> dict[str, Any]:
    """The record as one flat row of JSON values in which every column is present."""
    operation, _ = split_dispatch_name(record.operation)
    return {column.name: column.value(record, operation) for column in columns}
