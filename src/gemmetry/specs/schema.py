"""JSON schemas of spec files and of the JSON results."""

from __future__ import annotations

from typing import Any

from gemmetry.domain.columns import COLUMNS, SCHEMA_VERSION
from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.specs.keys import ALIASES
from gemmetry.specs.model import ProfileSpec

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_INTEGERS = frozenset(
    ("m", "n", "k", "batch", "split_k_slices", "seed", "sample_count", "launches_per_sample",
     "rounds", "processes", "input_sets", "flops", "bytes", "registers", "spill_bytes",
     "shared_memory_bytes", "compile_ns", "trace_operators", "trace_kernels", "refused_shapes")
)  # fmt: skip
_NUMBERS = frozenset(
    ("max_error_ratio", "relative_frobenius_error", "signed_bias", "zero_share", "median_ns",
     "ci_low_ns", "ci_high_ns", "min_ns", "p95_ns", "first_launch_ns", "gflops",
     "bandwidth_gb_per_s", "arithmetic_intensity", "roofline_fraction", "sm_clock_hz", "power_w",
     "temperature_c", "load_average", "process_spread")
)  # fmt: skip
_LISTS = frozenset(
    ("epilogue", "checks_passed", "checks_failed", "checks_not_applicable", "error_map",
     "declared", "throttle_reasons", "marks", "trace_files", "input_sha256")
)  # fmt: skip
_ALWAYS = frozenset(
    ("dispatch", "provider", "target", "operation", "configuration", "kind", "m", "n", "k",
     "batch", "lhs_dtype", "rhs_dtype", "result_dtype", "accumulator", "layouts", "epilogue",
     "split_k_slices", "outcome", "verification", "checks_passed", "checks_failed",
     "checks_not_applicable", "refused_shapes", "error_map", "declared", "distribution", "seed",
     "flops", "bytes", "throttle_reasons", "marks", "trace_files", "input_sha256", "tags")
)  # fmt: skip
"""Columns that are never null."""
_ENUMS = {
    "outcome": [str(outcome) for outcome in Outcome],
    "stage": [str(stage) for stage in Stage],
    "verification": [str(state) for state in Verification],
}


def spec_schema() -> dict[str, Any]:
    """JSON schema of spec files; aliases of keys are properties too."""
    schema = ProfileSpec.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        if name in properties:
            properties[alias] = {
                **properties[name], "description": f"Another name of {name}."
            }  # fmt: skip
    return {"$schema": _DRAFT, **schema, "title": "gemmetry spec"}


def result_schema() -> dict[str, Any]:
    """JSON schema of what ``--json`` prints: every key of a record is always there, null where
    it does not apply."""
    record = {
        "type": "object",
        "properties": {column.name: _property(column.name, column.unit, column.description)
                       for column in COLUMNS},
        "required": [column.name for column in COLUMNS],
    }  # fmt: skip
    return {
        "$schema": _DRAFT,
        "title": "gemmetry results",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "records": {"type": "array", "items": record},
        },
        "required": ["schema_version", "records"],
    }


def _property(name: str, unit: str, description: str) -> dict[str, Any]:
    if name in _INTEGERS:
        kind = "integer"
    elif name in _NUMBERS:
        kind = "number"
    elif name in _LISTS:
        kind = "array"
    else:
        kind = "object" if name == "tags" else "string"
    schema: dict[str, Any] = {"type": kind if name in _ALWAYS else [kind, "null"]}
    if kind == "array":
        schema["items"] = {"type": "string"}
    if name in _ENUMS:
        schema["enum"] = _ENUMS[name] + ([] if name in _ALWAYS else [None])
    schema["description"] = f"{description} Unit: {unit}." if unit else description
    return schema
