"""Known reasons for the speed of a dispatch, in one line.

The lines of machine code that show what a kernel's inner loop does.

Everything about one dispatch, on the console.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmetry.dispatches.analysis import fastest, problem_of
from gemmetry.dispatches.labels import format_ratio, operation_title
from gemmetry.dispatches.labels import half_width_label as format_half_width
from gemmetry.domain import units
from gemmetry.domain.columns import COLUMNS_BY_NAME
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import EmptySelectionError, Outcome, RequestError, did_you_mean, nearest
from gemmetry.domain.files import within
from gemmetry.domain.record import Measurement, Record, ResultSet
from gemmetry.domain.specs.selection import parse_pattern, split_patterns
from gemmetry.domain.units import format_bytes, format_percent
from gemmetry.results.texts import printable
from gemmetry.statistics.intervals import quantile


def why_line(record: Record, best: Record | None) -> str:
    """The instruction that computes its product, its share of the roofline, spills, the clock, and
    how the fastest dispatch of the same problem differs; "" if nothing is known.

    Args:
        best: the fastest dispatch of the problem, which may be `record`.
    """
    m = record.measurement
    if m is None:
        return ""
    parts, facts = [], record.facts
    other = best if best is not record else None
    if facts.matrix_instruction is not None:
        reached = _instruction(facts.matrix_instruction)
        theirs = other.facts.matrix_instruction if other else None
        if theirs not in (None, facts.matrix_instruction):
            reached += f" (the fastest here: {_instruction(str(theirs))})"
        parts.append(reached)
    if facts.compiled_for is not None:
        parts.append(f"compiled for {facts.compiled_for}")
    if facts.spill_bytes is not None:
        spilled = f"{format_bytes(facts.spill_bytes)} spilled per thread"
        parts.append(spilled if facts.spill_bytes else "no spills")
    if record.roofline_fraction is not None:
        parts.append(f"{format_percent(record.roofline_fraction)} of the roofline")
    if m.telemetry.sm_clock_hz is not None:
        parts.append(f"at {m.telemetry.sm_clock_hz / 1e6:.0f} MHz")
    if m.telemetry.throttle_reasons:
        parts.append(f"throttled: {', '.join(m.telemetry.throttle_reasons)}")
    if other and other.median_ns is not None:
        ratio = format_ratio(other.median_ns / m.median_ns if m.median_ns > 0 else None)
        name = f"{other.provider} {other.configuration}"
        parts.append(f"{ratio} the speed of {name}, the fastest here")
    return printable(" · ".join(parts))


def _instruction(name: str) -> str:
    return "no multiply instruction found" if name == "none" else name


EXCERPT_LINES = 20

_PLAIN_PRODUCT = "fma"
"""Instruction to look for if no matrix instruction was found: a part of the mnemonics of PTX
(``fma.rn``), AMD (``v_fma_f32``) and x86 (``vfmadd``)."""


def machine_code_excerpt(text: str, instruction: str | None) -> tuple[int, list[str]]:
    """The part of assembly or PTX where `instruction` is densest: usually the inner loop.

    Args:
        text: assembly or PTX of one dispatch.
        instruction: as ``BuildFacts.matrix_instruction`` names it; only its first word counts.

    Returns:
        Index of the first line, and up to ``EXCERPT_LINES`` lines; none if the instruction does
        not occur.
    """
    word = (instruction or "none").partition(" ")[0]
    if word == "none":
        word = _PLAIN_PRODUCT
    lines = text.splitlines()
    before = [0, *accumulate(word in line for line in lines)]
    """Number of occurrences before each line."""
    if not before[-1]:
        return 0, []
    places = range(max(1, len(lines) - EXCERPT_LINES + 1))
    start = max(places, key=lambda at: before[min(at + EXCERPT_LINES, len(lines))] - before[at])
    return start, lines[start : start + EXCERPT_LINES]


_SHOWN_IN_FULL = 3
"""Dispatches shown in full when a pattern matches several; more are listed by name."""

_LISTED = 20
_MOST_LINES = 24
_HISTOGRAM_ROWS = 10
_HISTOGRAM_WIDTH = 40
_FAR = 3.0
"""Interquartile ranges above the upper quartile from which on a sample is "far out" (Tukey,
"Exploratory Data Analysis", 1977)."""

_TEXT_SUFFIXES = {".mlir", ".py", ".ptx", ".ttir", ".ttgir", ".ll", ".cu", ".s", ".amdgcn", ".txt"}


def show_dispatch(result_set: ResultSet, pattern: str, console: Console) -> None:
    """Print everything known about the dispatches that `pattern` selects: operation, verdict with
    its checks, measurement, samples, build facts, source, reason and command.

    `pattern` is a name, ``provider:name``, a part of a name, or a selection as on the command
    line. Up to three dispatches are shown in full, more are listed by name.

    Raises:
        EmptySelectionError: nothing matches; the error suggests the nearest names.
        RequestError: the pattern cannot be read.
    """
    records = matching_records(result_set.records, pattern)
    if len(records) > _SHOWN_IN_FULL:
        console.print(Text(f"{len(records)} dispatches match; name one of them:", style="bold"))
        for record in records[:_LISTED]:
            console.print(Text(f"  {_full_name(record)}  {record.outcome}"), soft_wrap=True)
        if len(records) > _LISTED:
            console.print(Text(f"  … and {len(records) - _LISTED} more"))
        return
    for record in records:
        _show(result_set, record, console)


def matching_records(records: Sequence[Record], pattern: str) -> list[Record]:
    """The records that `pattern` selects; see :func:`show_dispatch`.

    Raises:
        EmptySelectionError: nothing matches. RequestError: the pattern cannot be read.
    """
    names = [f"{record.provider}:{record.dispatch}" for record in records]
    exact = [r for r in records if pattern in (r.dispatch, f"{r.provider}:{r.dispatch}")]
    if exact:
        return exact
    tests = [parse_pattern(text) for text in split_patterns(pattern)]
    found = [
        r for r in records
        if any(t.matches(r.provider, r.dispatch, parse_operation(r.operation)) for t in tests)
    ]  # fmt: skip
    found = found or [r for r, name in zip(records, names, strict=True) if pattern in name]
    if not found:
        near = nearest(pattern, [*names, *(record.dispatch for record in records)])
        some = f"There are {', '.join(names[:3])}" + (" and others" if len(names) > 3 else "")
        hint = did_you_mean(near) or f"{some}; gemmetry report lists all."
        raise EmptySelectionError(f"no dispatch matches {pattern!r}", hint=hint)
    return found


def _show(result_set: ResultSet, record: Record, console: Console) -> None:
    style = "green" if record.outcome is Outcome.OK else "red"
    title = Text(_full_name(record), style="bold")
    title.append(f"  {record.outcome}", style=f"bold {style}")
    console.print(title, soft_wrap=True)
    if record.outcome is not Outcome.OK:
        _section(console, "Reason", [("stage", str(record.stage or "")), ("reason", record.reason)])
        if record.output_tail:
            console.print(Text("  end of its output:", style="dim"))
            console.print(Text(_indented(record.output_tail)), soft_wrap=True)
    _section(console, "Operation", _operation_facts(record))
    _section(console, "Verification", _verdict_facts(record))
    if record.verdict.error_map:
        caption, *lines = record.verdict.error_map
        console.print(Text("Error map", style="bold cyan"))
        console.print(Text(f"  {printable(caption)}", style="dim"))
        console.print(Text(_indented("\n".join(lines))), soft_wrap=True)
    if record.verdict.evidence_path is not None:
        place = str(Path(result_set.path) / record.verdict.evidence_path)
        _section(console, "Evidence", [("inputs, output, why", place)])
    if record.measurement is not None:
        same = [one for one in result_set.records if problem_of(one) == problem_of(record)]
        facts = [("why", why_line(record, fastest(same))),
                 *_measurement_facts(record, record.measurement)]  # fmt: skip
        _section(console, "Measurement", facts)
        _print_histogram(console, result_set.samples(record))
    _section(console, "Traces", _trace_facts(record))
    _section(console, "Hardware counters", _counter_facts(record))
    _section(console, "Build", _build_facts(record))
    _print_files(console, Path(result_set.path), record)
    _section(console, "Tags", record.tags.items())
    # Each command is whole, on a line of its own, so that it can be copied.
    commands = (("Compile it", record.facts.compile_command),
                ("The provider's own benchmark of it", record.facts.run_command),
                ("Reproduce it", record.reproduce))  # fmt: skip
    for heading, command in commands:
        if command:
            console.print(Text(heading, style="bold cyan"))
            console.print(Text(f"  {printable(command)}"), soft_wrap=True)
    console.print()


def _section(console: Console, heading: str, facts: Iterable[tuple[str, str]]) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=26)
    grid.add_column(overflow="fold")
    rows = [(name, printable(text)) for name, text in facts if text]
    if not rows:
        return
    for name, text in rows:
        grid.add_row(Text(f"  {name}", style="dim"), Text(text))
    console.print(Text(heading, style="bold cyan"))
    console.print(grid)


def _operation_facts(record: Record) -> list[tuple[str, str]]:
    operation = parse_operation(record.operation)
    return [
        ("what", operation_title(operation)),
        *((one.role, f"{'×'.join(map(str, one.shape))} {one.dtype}, layout {one.layout}, "
                     f"{format_bytes(one.bytes)}")
          for one in (*operation.inputs, operation.output)),
        ("accumulator", str(operation.signature.accumulator)),
        ("flops", f"{record.flops:,}"),
        ("compulsory bytes", format_bytes(record.bytes)),
        ("inputs", f"{record.distribution}, seed {record.seed}"),
        ("parameters", ", ".join(
            f"{name} = {value}" for name, value in record.configuration_parameters.items())),
    ]  # fmt: skip


def _verdict_facts(record: Record) -> list[tuple[str, str]]:
    """Evidence of the verdict: one row for all passed checks, and one for each other check."""
    verdict, first_bad = record.verdict, record.verdict.first_bad or ""
    passed = [name for name, text in verdict.checks.items() if text == "passed"]
    others = [(f"check {name}", text) for name, text in verdict.checks.items() if text != "passed"]
    return [
        ("status", str(verdict.status)),
        ("why", verdict.reason if verdict.reason != record.reason else ""),
        ("first bad element", "" if first_bad in record.reason else first_bad),
        *_column_facts(record, "max_error_ratio", "relative_frobenius_error", "signed_bias",
                       "accuracy_class", "zero_share"),
        ("declared", ", ".join(record.facts.declared)),
        *others,
        (f"passed {units.plural(len(passed), 'check')}", ", ".join(passed)),
    ]  # fmt: skip


def _energy_text(record: Record) -> str:
    """Energy of a launch with its interval and resolution, or why there is none; "" where it was
    not requested."""
    energy = None if record.measurement is None else record.measurement.energy
    if energy is None or energy.energy_j is None:
        return "" if energy is None else f"none: {energy.reason}"
    interval = f"{units.format_joules(energy.ci_low_j)} to {units.format_joules(energy.ci_high_j)}"
    interval = "n/a: too few windows" if energy.ci_low_j is None else interval
    return (
        f"{units.format_joules(energy.energy_j)} (95 % interval {interval}), "
        f"{_column_text('flops_per_j', record)}, "
        f"{units.plural(energy.windows, 'window')} of at least {energy.window_s or 0:.1f} s with "
        f"a resolution of {format_percent(energy.resolution)}, "
        f"idle {_column_text('idle_power_w', record)}"
    )


def _measurement_facts(record: Record, m: Measurement) -> list[tuple[str, str]]:
    interval = f"{units.format_ns(m.ci_low_ns)} to {units.format_ns(m.ci_high_ns)}"
    taken = units.plural(m.sample_count, "sample")
    if record.is_imported:
        taken += f", {record.verdict.reason}"
    else:
        launches = units.plural(m.launches_per_sample, "launch", "launches")
        taken += f" in {units.plural(m.rounds, 'round')}, {launches} each"
        taken += f", {m.processes} processes" if m.processes > 1 else ""
        taken += f", {m.input_sets} input sets, {m.regime}, {m.launches.replace('_', ' ')}"
    extremes = [units.format_ns(one) for one in (m.min_ns, m.p95_ns) if one is not None]
    return [
        ("median", f"{units.format_ns(m.median_ns)} {format_half_width(m)}"),
        ("95 % interval", "n/a: too few samples" if m.ci_low_ns is None else interval),
        ("fastest, 95th perc.", ", ".join(extremes)),
        ("first launch", "" if m.first_launch_ns is None else units.format_ns(m.first_launch_ns)),
        ("speed", units.format_gflops(record.gflops)),
        ("bandwidth", _column_text("bandwidth_gb_per_s", record)),
        ("roofline", "" if record.roofline_fraction is None else
         f"{format_percent(record.roofline_fraction)} of {record.roofline_source}"),
        ("taken", taken),
        ("clock", m.method),
        ("stopped by", m.stop_reason),
        ("energy", _energy_text(record)),
        *_column_facts(record, "sm_clock_hz", "power_w", "temperature_c", "throttle_reasons",
                       "load_average"),
        *(("mark", mark) for mark in m.marks),
    ]  # fmt: skip


def _counter_facts(record: Record) -> Iterable[tuple[str, str]]:
    counters = record.counters
    if counters is None:
        return ()
    sure = f" ({counters.confidence} confidence)" if counters.confidence else ""
    collected = [f"the set {counters.metric_set}"]
    if counters.launches is not None:
        collected.append(units.plural(counters.launches, "kernel"))
    if counters.passes is not None:
        collected.append(f"{units.plural(counters.passes, 'pass', 'passes')} each")
    return [
        ("verdict", ": ".join(filter(None, (f"{counters.verdict}{sure}", counters.summary)))),
        ("collected", ", ".join(collected)),
        ("folder", counters.folder),
    ]


def _trace_facts(record: Record) -> Iterable[tuple[str, str]]:
    trace = record.trace
    if trace is None:
        return ()
    return (
        ("folder", trace.folder),
        ("files", ", ".join(trace.files)),
        ("operators", str(trace.operators)),
        ("kernels", str(trace.kernels)),
        *((f"sha256 of {role}", digest) for role, digest in trace.input_sha256.items()),
        ("sha256 of the result", trace.output_sha256),
    )


def _build_facts(record: Record) -> list[tuple[str, str]]:
    return [
        *_column_facts(record, "registers", "spill_bytes", "shared_memory_bytes",
                       "matrix_instruction", "compiled_for", "default_configuration",
                       "algorithms_tried", "workspace_bytes", "compile_ns"),
        *(("note", note) for note in record.facts.notes),
        ("environment", record.environment_id),
    ]  # fmt: skip


def _print_files(console: Console, folder: Path, record: Record) -> None:
    """Print the folder of generated files, this dispatch's part of the source, and the machine
    code around its product."""
    facts = record.facts
    named = (("source", facts.source_path), ("binary", facts.binary_path),
             ("assembly", facts.assembly_path),
             ("printed by the tools", facts.tool_output_path))  # fmt: skip
    _section(console, "Files", [(name, str(folder / path)) for name, path in named if path])
    excerpts: tuple[tuple[str, str | None, Callable[[str], tuple[int, list[str]]]], ...] = (
        ("source", facts.source_path, lambda text: source_excerpt(text, record.dispatch)),
        ("assembly", facts.assembly_path,
         lambda text: machine_code_excerpt(text, facts.matrix_instruction)),
    )  # fmt: skip
    for what, path, excerpt in excerpts:
        text = _read(folder, path, what, console)
        first, lines = excerpt(text) if text is not None else (0, [])
        if lines:
            console.print(Text(f"  {what}, from line {first + 1}:", style="dim"))
            shown = "\n".join(line.expandtabs(4) for line in lines[:_MOST_LINES])
            console.print(Text(_indented(shown), style="dim"), soft_wrap=True)
        if len(lines) > _MOST_LINES:
            console.print(Text("    …", style="dim"))


def _read(folder: Path, path: str | None, what: str, console: Console) -> str | None:
    """The text of a generated file. None if there is no such file or it is not text; a file that
    should exist and cannot be read is reported."""
    if path is None or (folder / path).suffix not in _TEXT_SUFFIXES:
        return None
    try:
        return within(folder, path).read_text(encoding="utf-8", errors="replace")
    except RequestError:
        cause = "is outside of the experiment and not shown"
    except OSError as error:
        cause = f"cannot be read: {error.strerror}"
    console.print(Text(f"  the {what} {cause}", style="yellow"))
    return None


def source_excerpt(text: str, name: str) -> tuple[int, list[str]]:
    """The lines of a source that belong to `name`, and the index of the first one.

    They start at the first line that contains `name` as a whole word, or at the attribute
    definitions (``#config = …``) directly above it, and end with the line ``}`` that closes what
    starts there. A source that does not contain the name (the file of a single dispatch) is
    returned whole.
    """
    lines = text.splitlines()
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    start = next((i for i, line in enumerate(lines) if word.search(line)), None)
    if start is None:
        return 0, lines
    end = next((i + 1 for i in range(start, len(lines)) if lines[i] == "}"), len(lines))
    while start > 0 and lines[start - 1].startswith("#"):
        start -= 1
    return start, lines[start:end]


def _print_histogram(console: Console, samples: Sequence[float]) -> None:
    """Print a histogram of the samples over equal bins, one line per bin. Samples far above the
    others, which would leave most bins empty, are one line."""
    if len(samples) < 2:
        return
    ordered = sorted(samples)
    low, quarter, upper = ordered[0], quantile(ordered, 0.25), quantile(ordered, 0.75)
    limit = upper + _FAR * (upper - quarter)
    near = [one for one in ordered if one <= limit] if limit > low else ordered
    far = ordered[len(near) :]
    rows = min(_HISTOGRAM_ROWS, math.ceil(math.sqrt(len(ordered))))
    width = (near[-1] - low) / rows
    if width <= 0:
        console.print(Text(f"  all {len(ordered)} samples are {units.format_ns(low)}"))
        return
    bins = Counter(min(rows - 1, int((one - low) / width)) for one in near)
    lines = [(units.format_ns(low + place * width), bins[place]) for place in range(rows)]
    if far:
        lines.append((f"≥ {units.format_ns(far[0])}", len(far)))
    console.print(Text("Samples", style="bold cyan"))
    top = max(count for _, count in lines)
    for edge, count in lines:
        bar = "█" * round(_HISTOGRAM_WIDTH * count / top) or ("▏" if count else "")
        console.print(Text(f"  {edge:>9}  {bar} {count}"))


def _column_text(name: str, record: Record) -> str:
    column = COLUMNS_BY_NAME[name]
    return column.text(column.value(record, parse_operation(record.operation)))


def _column_facts(record: Record, *names: str) -> Iterator[tuple[str, str]]:
    """The columns that the record has a value of."""
    for name in names:
        if (text := _column_text(name, record)) not in ("–", ""):
            yield name.removesuffix("_ns").replace("_", " "), text


def _full_name(record: Record) -> str:
    return printable(f"{record.provider}:{record.dispatch} on {record.device or record.target}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in printable(text).splitlines())
