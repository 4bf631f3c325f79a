"""NVIDIA's chips: which one a GPU has, and which metrics Nsight Compute can collect on it.

The names are in ``nvidia_metrics.txt.gz``; ``docs/generate/nvidia_metrics.py`` makes it from the
library that lists them, for which no GPU is needed.

Concepts, such as the bytes that DRAM delivered, and the metrics that show them on each chip.

A concept has one or more expressions of metrics, in order of preference. Which of them a chip has
follows from the list of its metrics, and which of them a report has from the report, so that a
rule of a diagnosis is written once, for all generations. ``concepts.csv`` lists them.
"""

from __future__ import annotations

import ast
import csv
import gzip
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from gemmetry.counters.model import COUNTER, CounterEvidence
from gemmetry.domain.errors import UnknownNameError
from gemmetry.formats.counters.launches import DURATION, ProfiledLaunch
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS
from gemmetry.hardware.amd_counters import has_counter

CAPABILITIES: Mapping[str, str] = {
    "7.0": "GV100", "7.2": "GV11B", "7.5": "TU102", "8.0": "GA100", "8.6": "GA102", "8.7": "GA10B",
    "8.9": "AD102", "9.0": "GH100", "10.0": "GB100", "10.3": "GB110", "10.1": "GB10B",
    "11.0": "GB10B", "12.0": "GB202", "12.1": "GB20B",
}  # fmt: skip
"""Compute capability -> one of the chips with it. Chips of one capability have the same metrics;
TU116 and TU117 alone lack a few of NVLink (CUDA C++ Programming Guide, table of compute
capabilities; the lists compared by ``docs/generate/nvidia_metrics.py``)."""

_METRICS = Path(__file__).with_name("nvidia_metrics.txt.gz")

_OF_THE_TOOL = re.compile(
    r"(?:launch__|device__attribute_|profiler__|derived__|smsp__pcsamp_|pmsampling:|breakdown:"
    r"|group:|numa__|nvlink__|c2clink__|sass__|memory_|thread_inst_executed)[\w.]*"
    r"|inst_executed|smsp__branch_targets_threads_divergent|smsp__sass_inst_executed_memdesc_\w+"
    r"|(?:sm|smsp)__maximum_warps_(?:avg_per_active_cycle|per_active_cycle_pct)"
)
"""Metrics that Nsight Compute itself computes, for every chip. Compared with the 2238 metrics of a
full report of an H200 (Nsight Compute 2025.3.1)."""

_PEAK = r"peak_sustained(?:_(?:active|elapsed|frame|region)(?:\.per_second)?)?"
_SHARE = r"pct_of_peak_sustained_(?:active|elapsed|frame|region)"
_RATE = r"per_(?:cycle_(?:active|elapsed|in_frame|in_region)|second)"
_SUFFIXES = {
    "c": re.compile(rf"\.(?:avg|max|min|sum)(?:\.(?:{_PEAK}|{_SHARE}|{_RATE}))?"),
    "r": re.compile(r"\.(?:max_rate|pct|ratio)"),
    "t": re.compile(rf"\.(?:avg|max|min|sum)\.{_SHARE}"),
}
"""Suffixes of a counter, a ratio and a throughput (``NVPW_RollupOp`` and
``NVPW_MetricsEvaluator_GetSupportedSubmetrics`` in ``nvperf_host.h``)."""


def chip_of(name: str) -> str:
    """The chip that `name` refers to: a chip (``gh100``), a compute capability (``9.0``,
    ``sm_90``), or an architecture of AMD (``gfx942``).

    Raises:
        UnknownNameError: no such chip is listed.
    """
    text = name.strip().lower()
    if found := re.fullmatch(r"sm_?(\d+)(\d)[af]?", text):
        text = f"{found[1]}.{found[2]}"
    if text in CAPABILITIES:
        return CAPABILITIES[text]
    architecture = text.split(":")[0]
    if architecture in AMD_CHIPS:
        return architecture
    if text.upper() in _listed()[0]:
        return text.upper()
    raise UnknownNameError("chip", name, [*(c.lower() for c in _listed()[0]), *AMD_CHIPS])


def has_metric(chip: str, metric: str) -> bool:
    """Whether Nsight Compute can collect `metric` on an NVIDIA chip."""
    if _OF_THE_TOOL.fullmatch(metric):
        return True
    name, dot, suffix = metric.partition(".")
    kind = _counters_of(chip).get(name)
    return kind is not None and _SUFFIXES[kind].fullmatch(dot + suffix) is not None


def check_metric(chip: str, metric: str) -> None:
    """Check that a metric exists.

    Raises:
        UnknownNameError: the chip has no such metric.
    """
    if has_metric(chip, metric):
        return
    name, dot, suffix = metric.partition(".")
    counters = _counters_of(chip)
    known = [f"{one}{dot}{suffix}" for one in counters]
    if name in counters:
        endings = {"c": ["sum", "avg", "max", "min", "sum.per_second",
                         "avg.pct_of_peak_sustained_elapsed"],
                   "r": ["ratio", "pct", "max_rate"],
                   "t": ["avg.pct_of_peak_sustained_elapsed"]}[counters[name]]  # fmt: skip
        known = [f"{name}.{one}" for one in endings]
    raise UnknownNameError(f"metric of {chip}", metric, known)


@cache
def _counters_of(chip: str) -> dict[str, str]:
    """The counters, ratios and throughputs of a chip, each with its type."""
    chips, metrics = _listed()
    bit = chips.index(chip)
    return {name: kind for name, (kind, bits) in metrics.items() if bits >> bit & 1}


@cache
def _listed() -> tuple[list[str], dict[str, tuple[str, int]]]:
    """The chips, and each metric with its type and, as bits, the chips that have it."""
    lines = gzip.decompress(_METRICS.read_bytes()).decode().splitlines()
    chips, *rows = [line.split() for line in lines if not line.startswith("#")]
    return chips, {name: (kind, int(bits, 16)) for kind, name, bits in rows}


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip

AMD_FACTS = (DURATION, "cu_count", "simd_count", "num_xcc", "max_waves_per_cu")
"""Facts that expressions use like counters, and rocprofv3 writes for each launch and GPU: the time,
and the GPU's properties (``*_agent_info.csv``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """Something that counters show.

    Attributes:
        name: in small letters, with underscores.
        unit: of the value, in base units; "" for a plain number.
        meaning: a phrase that completes "it is".
        expressions: of metrics, in order of preference.
        section: of Nsight Compute, which collects it; "" where the metrics have to be listed.
        source: where the expressions are defined or were checked.
    """

    name: str
    meaning: str
    expressions: tuple[str, ...]
    unit: str = ""
    section: str = ""
    source: str = ""


_T = TypeVar("_T")


def listed(name: str, kind: type[_T]) -> tuple[_T, ...]:
    """The rows of a table next to this file as dataclasses. Remarks begin with ``#``, parts of
    tuples are separated by semicolons, and fields without a text have their default."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    lists = {one.name for one in fields(kind) if str(one.type).startswith("tuple")}  # type: ignore[arg-type]
    rows = (
        {key: text.split("; ") if key in lists else text for key, text in row.items() if text}
        for row in csv.DictReader(line for line in lines if not line.startswith("#"))
    )
    return tuple(msgspec.convert(row, kind, strict=False) for row in rows)


@cache
def concepts() -> tuple[Concept, ...]:
    """All of them, in the order in which they are shown."""
    return listed("concepts.csv", Concept)


def concept_of(name: str) -> Concept:
    """The concept of this name.

    Raises:
        UnknownNameError: no concept has this name.
    """
    known = _by_name()
    if name not in known:
        raise UnknownNameError("concept", name, known)
    return known[name]


def reading_of(launch: ProfiledLaunch, concept: str | Concept) -> CounterEvidence | None:
    """The concept's value for `launch`, from the first expression whose metrics the report has;
    None where it has none, or where a share refers to nothing (0 / 0).

    Raises:
        UnknownNameError: there is no such concept.
    """
    one = concept_of(concept) if isinstance(concept, str) else concept
    for expression in one.expressions:
        try:
            value = _compiled(expression)(launch.value)
        except ZeroDivisionError:
            continue
        if value is not None:
            if " " in expression:
                return CounterEvidence(one.name, value, one.unit, expression)
            return CounterEvidence(expression, value, one.unit, COUNTER)
    return None


def value_of(launch: ProfiledLaunch, concept: str | Concept) -> float | None:
    """The value of :func:`reading_of`."""
    found = reading_of(launch, concept)
    return None if found is None else found.value


def expression_on(chip: str, concept: str | Concept) -> str | None:
    """The preferred expression whose metrics `chip` has; None where it has none."""
    one = concept_of(concept) if isinstance(concept, str) else concept
    return next((text for text in one.expressions
                 if all(_exists(chip, metric) for metric in metrics_in(text))), None)  # fmt: skip


def flags_for(wanted: Iterable[str | Concept], chip: str, without: Collection[str] = ()) -> str:
    """The options of ncu, or of rocprofv3 on AMD, that collect these concepts; "" for none.

    Args:
        without: sections that are not named; what they collect is listed by its metrics.
    """
    sections: dict[str, None] = {}
    metrics: dict[str, None] = {}
    for one in wanted:
        concept = concept_of(one) if isinstance(one, str) else one
        expression = expression_on(chip, concept)
        if expression is None:
            continue
        if concept.section and concept.section not in without and chip not in AMD_CHIPS:
            sections[concept.section] = None
        else:
            metrics.update(dict.fromkeys(m for m in metrics_in(expression) if m not in AMD_FACTS))
    if chip in AMD_CHIPS:
        return f"--pmc {' '.join(metrics)}" if metrics else ""
    listed = [f"--metrics {','.join(metrics)}"] if metrics else []
    return " ".join([*(f"--section {name}" for name in sections), *listed])


_METRIC = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")


@cache
def metrics_in(expression: str) -> tuple[str, ...]:
    """The ids of the metrics in an expression, each once."""
    return tuple(dict.fromkeys(_METRIC.findall(expression)))


Lookup = Callable[[str], float | None]


@cache
def _compiled(expression: str) -> Callable[[Lookup], float | None]:
    """`expression` as a function of what gives a metric's value."""

    def build(node: ast.expr) -> Callable[[Sequence[float]], float]:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                apply, first, second = _OPERATORS[type(op)], build(left), build(right)
                return lambda values: apply(first(values), second(values))
            case ast.Constant(value=int() | float() as number):
                return lambda values: float(number)
            case ast.Name() | ast.Attribute():
                position = names.index(ast.unparse(node))
                return lambda values: values[position]
        raise ValueError(f"{expression!r} is not an expression of metrics")

    names = metrics_in(expression)
    function = build(ast.parse(expression, mode="eval").body)

    def evaluate(lookup: Lookup) -> float | None:
        values = [lookup(name) for name in names]
        known = [value for value in values if value is not None]
        return function(known) if len(known) == len(values) else None

    return evaluate


@cache
def _by_name() -> dict[str, Concept]:
    return {one.name: one for one in concepts()}


def _exists(chip: str, metric: str) -> bool:
    if chip not in AMD_CHIPS:
        return has_metric(chip, metric)
    return metric in AMD_FACTS or has_counter(metric, chip)
