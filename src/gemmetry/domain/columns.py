"""One table of every column a record has: name, unit, direction, description, value.

The JSON records, CSV, Parquet, xlsx and Markdown tables, the docs' column reference and the
formatting of the console all read this table; nothing else names columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmetry.domain import units
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Verification
from gemmetry.domain.record import Measurement, Record
from gemmetry.domain.tables import Direction

SCHEMA_VERSION = 1
"""Of the JSON contract; raised when a key is removed or changes its meaning."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `value` takes the record and its parsed operation, None means does not apply."""

    name: str
    unit: str
    description: str
    value: Callable[[Record, Operation], Any]
    direction: Direction = Direction.NONE
    format: Callable[[Any], str] | None = None
    """Text for people; None: str()."""
    absent: str = "–"
    """Text for people where there is no value."""

    @property
    def label(self) -> str:
        """The heading over cells that :meth:`text` made: those carry their own unit, so that
        ``median_ns`` is headed ``median``."""
        if self.format is None or not self.unit:
            return self.name
        if self.name == "gflops":
            return "speed"
        return re.sub(r"_(?:ns|hz|w|c|gb_per_s)$", "", self.name)

    def text(self, value: Any) -> str:
        if value is None:
            return self.absent
        if self.format is not None:
            return self.format(value)
        if isinstance(value, (list, tuple)):
            return ", ".join(str(item) for item in value)
        return str(value)


_even_ns = partial(units.format_ns, even=True)

_LOW, _HIGH = Direction.LOWER_IS_BETTER, Direction.HIGHER_IS_BETTER


def _measured(attribute: str) -> Callable[[Record, Operation], Any]:
    def value(record: Record, _operation: Operation) -> Any:
        m: Measurement | None = record.measurement
        return None if m is None else getattr(m, attribute)

    return value


def _telemetry(attribute: str) -> Callable[[Record, Operation], Any]:
    def value(record: Record, _operation: Operation) -> Any:
        return (
            None if record.measurement is None else getattr(record.measurement.telemetry, attribute)
        )

    return value


def _traced(attribute: str) -> Callable[[Record, Operation], Any]:
    def value(record: Record, _operation: Operation) -> Any:
        return None if record.trace is None else getattr(record.trace, attribute)

    return value


def _accuracy_class(record: Record, _operation: Operation) -> str | None:
    """None for a wrong result, whose errors are not those of an arithmetic."""
    is_right = record.verdict.status in (Verification.PASSED, Verification.WARNED)
    return record.verdict.accuracy_class if is_right else None


def _checks(*outcomes: str) -> Callable[[Record, Operation], Any]:
    """Checks of a verdict whose text begins with one of `outcomes`; those that passed by name
    alone."""

    def value(record: Record, _operation: Operation) -> Any:
        found = [
            (name, text)
            for name, text in record.verdict.checks.items()
            if text.partition(":")[0] in outcomes
        ]
        return [name if text == "passed" else f"{name}: {_why(text)}" for name, text in found]

    return value


def _why(text: str) -> str:
    """``warned: why`` as it stands, ``failed: why`` and ``not applicable: why`` without the
    outcome, which the column tells."""
    outcome, _, why = text.partition(": ")
    return text if outcome == "warned" else why or outcome


def _marks(record: Record, _operation: Operation) -> list[str]:
    return [] if record.measurement is None else list(record.measurement.marks)


def _throttle(record: Record, _operation: Operation) -> list[str]:
    m = record.measurement
    return [] if m is None else list(m.telemetry.throttle_reasons)


COLUMNS: tuple[Column, ...] = (
    Column("dispatch", "", "Operation's name, `_`, configuration's name.", lambda r, o: r.dispatch),
    Column("provider", "", "Who computed it.", lambda r, o: r.provider),
    Column("target", "", "Device kind and architecture, e.g. `cuda-sm_90`.", lambda r, o: r.target),
    Column("device", "", "Device it ran on, e.g. `cuda:0`.", lambda r, o: r.device or None),
    Column("operation", "", "The operation's name.", lambda r, o: r.operation),
    Column("configuration", "", "The configuration's name.", lambda r, o: r.configuration),
    Column("kind", "", "Kind of operation.", lambda r, o: str(o.kind)),
    Column("m", "", "Rows of the result (implicit GEMM for conv2d).",
           lambda r, o: o.matmul_shape.m),
    Column("n", "", "Columns of the result.", lambda r, o: o.matmul_shape.n),
    Column("k", "", "Length of the reduction.", lambda r, o: o.matmul_shape.k),
    Column("batch", "", "Number of products.", lambda r, o: o.matmul_shape.batch),
    Column("lhs_dtype", "", "Format of A.", lambda r, o: o.signature.lhs.name),
    Column("rhs_dtype", "", "Format of B.", lambda r, o: o.signature.rhs.name),
    Column("result_dtype", "", "Format of C.", lambda r, o: o.signature.result.name),
    Column("accumulator", "", "Format of the accumulator that the operation asks for.",
           lambda r, o: o.signature.accumulator.name),
    Column("layouts", "", "Layouts of A and B (t row-major, n column-major).",
           lambda r, o: o.signature.layout_pair),
    Column("epilogue", "", "Fused steps, in order.",
           lambda r, o: [str(step) for step in o.signature.epilogue]),
    Column("split_k_slices", "", "Slices of the reduction (1: not split).",
           lambda r, o: o.signature.split_k_slices),
    Column("outcome", "", "What became of the dispatch.", lambda r, o: str(r.outcome)),
    Column("stage", "", "Stage that ended it where the outcome is not ok.",
           lambda r, o: None if r.stage is None else str(r.stage)),
    Column("reason", "", "Why, where the outcome is not ok.", lambda r, o: r.reason or None),
    Column("verification", "", "passed, warned, failed or not_verified.",
           lambda r, o: str(r.verdict.status)),
    Column("max_error_ratio", "", "Largest error divided by its bound (1 = on the bound).",
           lambda r, o: r.verdict.max_error_ratio, _LOW, lambda v: f"{v:.3g}"),
    Column("relative_frobenius_error", "", "‖C − reference‖ / ‖reference‖.",
           lambda r, o: r.verdict.relative_frobenius_error, _LOW, lambda v: f"{v:.2e}"),
    Column("signed_bias", "", "Mean signed error over the bound's scale.",
           lambda r, o: r.verdict.signed_bias, Direction.NONE, lambda v: f"{v:+.2e}"),
    Column("accuracy_class", "", "The arithmetic that the errors of a right result are consistent "
           "with.", _accuracy_class),
    Column("checks_passed", "", "Checks that it passed.", _checks("passed")),
    Column("checks_failed", "", "Checks that failed or warned, each with why.",
           _checks("failed", "warned")),
    Column("checks_not_applicable", "", "Checks that could not apply, each with why.",
           _checks("not applicable")),
    Column("refused_shapes", "", "Small shapes that checks tried and the configuration refused.",
           lambda r, o: r.verdict.refused_shapes),
    Column("first_bad", "", "Index, value and expectation of the first wrong element.",
           lambda r, o: r.verdict.first_bad),
    Column("error_map", "", "Lines that draw where the result is wrong, the caption first.",
           lambda r, o: list(r.verdict.error_map)),
    Column("evidence_path", "", "Folder with the failing inputs and output, in the experiment's.",
           lambda r, o: r.verdict.evidence_path),
    Column("declared", "", "What the provider declares of its arithmetic.",
           lambda r, o: [str(trait) for trait in r.facts.declared]),
    Column("distribution", "", "Distribution of the inputs.", lambda r, o: r.distribution),
    Column("seed", "", "Seed of the inputs.", lambda r, o: r.seed),
    Column("zero_share", "", "Share of zeros among the quantised inputs.",
           lambda r, o: r.verdict.zero_share, Direction.NONE, units.format_percent),
    Column("median_ns", "ns", "Median duration of one launch.", _measured("median_ns"),
           _LOW, _even_ns),
    Column("ci_low_ns", "ns", "Lower end of the median's 95 % interval; none where there are too "
           "few samples for one.", _measured("ci_low_ns"), _LOW, _even_ns, "n/a"),
    Column("ci_high_ns", "ns", "Upper end of the median's 95 % interval; none where there are too "
           "few samples for one.", _measured("ci_high_ns"), _LOW, _even_ns, "n/a"),
    Column("min_ns", "ns", "Shortest sample, per launch.", _measured("min_ns"),
           _LOW, _even_ns),
    Column("p95_ns", "ns", "95th percentile of the samples, per launch.", _measured("p95_ns"),
           _LOW, _even_ns),
    Column("sample_count", "", "Number of samples.", _measured("sample_count")),
    Column("launches_per_sample", "", "Launches timed together as one sample.",
           _measured("launches_per_sample")),
    Column("rounds", "", "Interleaved rounds over which the samples were taken.",
           _measured("rounds")),
    Column("processes", "", "Processes that the rounds were taken in.", _measured("processes")),
    Column("process_spread", "", "Range of the processes' medians over the median, where their "
           "rounds do not overlap; else 0.",
           _measured("process_spread"), _LOW, units.format_percent),
    Column("method", "", "wall_clock, events, graph or simulated.", _measured("method")),
    Column("regime", "", "burst or sustained.", _measured("regime")),
    Column("stop_reason", "", "Why sampling ended: interval, time_budget or max_samples.",
           _measured("stop_reason")),
    Column("input_sets", "", "Copies of the inputs that launches rotate through.",
           _measured("input_sets")),
    Column("first_launch_ns", "ns", "Duration of the very first launch.",
           _measured("first_launch_ns"), _LOW, _even_ns),
    Column("effective_samples", "", "Independent samples that these are worth, given how alike "
           "those of one round are.", _measured("effective_samples"), Direction.NONE,
           lambda v: f"{v:.0f}"),
    Column("harness_overhead_ns", "ns", "What timing an empty call reports, a sample.",
           _measured("harness_overhead_ns"), _LOW, _even_ns),
    Column("flops", "FLOP", "2·batch·M·N·K.", lambda r, o: r.flops),
    Column("bytes", "B", "Compulsory traffic: inputs once, result once.",
           lambda r, o: r.bytes, Direction.NONE, units.format_bytes),
    Column("gflops", "10⁹ FLOP/s", "flops over the median duration.", lambda r, o: r.gflops,
           _HIGH, partial(units.format_gflops, even=True)),
    Column("bandwidth_gb_per_s", "10⁹ B/s", "bytes over the median duration.",
           lambda r, o: r.bandwidth_gb_per_s, _HIGH, lambda v: f"{v:.3g} GB/s"),
    Column("arithmetic_intensity", "FLOP/B", "flops over bytes.",
           lambda r, o: r.flops / r.bytes if r.bytes else None, Direction.NONE,
           lambda v: f"{v:.3g}"),
    Column("roofline_fraction", "", "Share of the roofline's attainable FLOP/s.",
           lambda r, o: r.roofline_fraction, _HIGH, lambda v: f"{100 * v:.1f} %"),
    Column("roofline_source", "", "Where the roofline's peaks come from.",
           lambda r, o: r.roofline_source or None),
    Column("sm_clock_hz", "Hz", "Median clock of the device's cores while sampling.",
           _telemetry("sm_clock_hz"), Direction.NONE, lambda v: f"{v / 1e6:.0f} MHz"),
    Column("power_w", "W", "Median power while sampling.", _telemetry("power_w"),
           Direction.NONE, lambda v: f"{v:.0f} W"),
    Column("temperature_c", "°C", "Median temperature while sampling.",
           _telemetry("temperature_c"), Direction.NONE, lambda v: f"{v:.0f} °C"),
    Column("throttle_reasons", "", "What slowed the clock while sampling.", _throttle),
    Column("load_average", "", "Runnable processes per core while sampling (CPU).",
           _telemetry("load_average"), Direction.NONE, lambda v: f"{v:.2f}"),
    Column("others_cpu_share", "", "Share of the processors that other programs took (CPU).",
           _telemetry("others_cpu_share"), Direction.NONE, units.format_percent),
    Column("run_delay_share", "", "Time that threads stood ready without a processor, over the "
           "sampling time (CPU).", _telemetry("run_delay_share"), _LOW, units.format_percent),
    Column("processors", "", "Processors that the dispatch was held to (CPU).",
           lambda r, o: r.measurement.telemetry.processors or None if r.measurement else None),
    Column("marks", "", "What makes the measurement less than trustworthy.", _marks),
    Column("registers", "", "Registers per thread.", lambda r, o: r.facts.registers, _LOW),
    Column("spill_bytes", "B", "Spilled registers per thread.",
           lambda r, o: r.facts.spill_bytes, _LOW),
    Column("shared_memory_bytes", "B", "Shared memory per block.",
           lambda r, o: r.facts.shared_memory_bytes),
    Column("matrix_instruction", "", "Instruction of the product in the machine code.",
           lambda r, o: r.facts.matrix_instruction),
    Column("compiled_for", "", "Architecture compiled for, if not the target's own.",
           lambda r, o: r.facts.compiled_for),
    Column("default_configuration", "", "What the compiler chose by itself.",
           lambda r, o: r.facts.default_configuration),
    Column("compile_ns", "ns", "Compile time of this dispatch (its share of a batch).",
           lambda r, o: r.facts.compile_ns, _LOW, _even_ns),
    Column("compile_command", "", "Command that compiles it.",
           lambda r, o: r.facts.compile_command),
    Column("run_command", "", "Command of the provider's own benchmark tool.",
           lambda r, o: r.facts.run_command),
    Column("trace_folder", "", "Folder of its traces, in the experiment's.", _traced("folder")),
    Column("trace_files", "", "Files in that folder.",
           lambda r, o: [] if r.trace is None else list(r.trace.files),
           format=lambda v: str(len(v))),
    Column("trace_operators", "", "CPU operators recorded, over all repeats.",
           _traced("operators")),
    Column("trace_kernels", "", "GPU kernels recorded, over all repeats.", _traced("kernels")),
    Column("input_sha256", "", "SHA-256 of each input's bytes, as role:digest, where traced.",
           lambda r, o: [] if r.trace is None
           else [f"{role}:{digest}" for role, digest in r.trace.input_sha256.items()]),
    Column("output_sha256", "", "SHA-256 of the result's bytes, where traced.",
           _traced("output_sha256")),
    Column("reproduce", "", "Command that does this dispatch again.",
           lambda r, o: r.reproduce or None),
    Column("environment_id", "", "Hash of the environment it ran in.",
           lambda r, o: r.environment_id or None),
    Column("tags", "", "Tags given with --tags.", lambda r, o: dict(r.tags)),
)  # fmt: skip

COLUMNS_BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}


def row(record: Record, columns: Iterable[Column] = COLUMNS) -> dict[str, Any]:
    """The record as one flat row, JSON values, every column present."""
    operation, _ = split_dispatch_name(record.operation)
    return {column.name: column.value(record, operation) for column in columns}
