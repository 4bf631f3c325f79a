"""NVIDIA's chips: which one a GPU has, and which metrics Nsight Compute can collect on it.

The names are in ``nvidia_metrics.txt.gz``; ``docs/generate/nvidia_metrics.py`` makes it from the
library that lists them, for which no GPU is needed.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gemmetry.domain.errors import UnknownNameError
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS

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
"""What follows the name of a counter, a ratio and a throughput (``NVPW_RollupOp`` and
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
    chips, metrics = _listed()
    found = metrics.get(name)
    return (
        found is not None
        and bool(found[1] >> chips.index(chip) & 1)
        and _SUFFIXES[found[0]].fullmatch(dot + suffix) is not None
    )


def check_metric(chip: str, metric: str) -> None:
    """Check that a metric exists.

    Raises:
        UnknownNameError: it does not, on this chip.
    """
    if has_metric(chip, metric):
        return
    chips, metrics = _listed()
    name, dot, suffix = metric.partition(".")
    found = metrics.get(name)
    bit = chips.index(chip)
    if found is not None and found[1] >> bit & 1:
        endings = {"c": ["sum", "avg", "max", "min", "sum.per_second",
                         "avg.pct_of_peak_sustained_elapsed"],
                   "r": ["ratio", "pct", "max_rate"],
                   "t": ["avg.pct_of_peak_sustained_elapsed"]}[found[0]]  # fmt: skip
        raise UnknownNameError(f"metric of {chip}", metric, [f"{name}.{one}" for one in endings])
    known = [f"{one}{dot}{suffix}" for one, (_, bits) in metrics.items() if bits >> bit & 1]
    raise UnknownNameError(f"metric of {chip}", metric, known)


@cache
def _listed() -> tuple[list[str], dict[str, tuple[str, int]]]:
    """The chips, and each metric with its type and, as bits, the chips that have it."""
    lines = gzip.decompress(_METRICS.read_bytes()).decode().splitlines()
    chips, *rows = [line for line in lines if not line.startswith("#")]
    metrics = {}
    for row in rows:
        kind, name, bits = row.split()
        metrics[name] = (kind, int(bits, 16))
    return chips.split(), metrics
