"""Figures of sweeps as texts, the same on terminals and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import KIND, configuration_of
from gemmetry.analysis.sweeps.comparison.model import SweepRow
from gemmetry.analysis.sweeps.model import GemmKind
from gemmetry.domain.units import format_change, format_interval, format_memory
from gemmetry.kernel_names import KernelKind, classify
from gemmetry.reports.texts import elide

PARTS = {
    "compute_ms": "compute",
    "slowed_compute_ms": "slowed compute",
    "exposed_comm_ms": "exposed communication",
    "exposed_copy_ms": "exposed copies",
    "idle_ms": "idle",
}
"""Key of a part of the step -> its name."""

MEASURES = {
    "step_ms": "step",
    "best_step_ms": "step of the best point",
    "mean_step_ms": "step, mean over the points",
    "trace_ms": "whole trace",
    "best_trace_ms": "whole trace of the best point",
    "mean_trace_ms": "whole trace, mean over the points",
    "median_us": "all instances",
    "alone_median_us": "alone",
    "overlapped_median_us": "next to communication",
    "slowdown": "slowdown by communication",
    "latency_us": "latency",
    **PARTS,
}
"""Key of a compared figure -> its name."""

_MOST_PERCENT = 11
"""Ratios from here on are not given in percent."""

Entry = Mapping[str, Any]

_MOST_LEFT_OUT = 3

_KERNEL = 32
"""Characters of a kernel's name in a label: the ends, which differ between tiles."""


def point_label(entry: Entry) -> str:
    """``256 threads, 8 channels, repeat 2`` of an entry of ``analysis.json``."""
    repeat = entry.get("repeat", 1)
    return configuration_of(entry).label + (f", repeat {repeat}" if repeat > 1 else "")


def marked_label(entry: Entry) -> str:
    """The point, with what sets it apart from those that are compared: ``... (failed)``."""
    mark = entry["outcome"].replace("_", " ")
    if mark == "ok" and entry.get("left_out"):
        mark = "incomplete"
    return point_label(entry) + ("" if mark == "ok" else f" ({mark})")


def left_out_text(points: Sequence[Entry]) -> str:
    """Points that are not compared, each with the reason; of many, the first ones."""
    listed = "; ".join(f"{point_label(one)} ({one['reason']})" for one in points[:_MOST_LEFT_OUT])
    more = len(points) - _MOST_LEFT_OUT
    return listed + (f"; and {more} more" if more > 0 else "")


def gemm_label(entry: Entry, among: Iterable[Entry] = ()) -> str:
    """The sizes of a GEMM, and whether the kernel only sums what others multiplied; the kernel's
    name where the sizes are not known, and after them where `among` has another kernel of them.
    So for the format and the layouts, where `among` has the same sizes with others."""
    kernel = entry["kernel"]
    shape = GemmKind(kernel, "", *(entry[name] for name in KIND[1:5])).shape
    if not shape:
        return str(kernel)
    is_helper = classify(kernel).kind is KernelKind.GEMM_REDUCTION
    label = shape + (" (sum of slices)" if is_helper else "")
    same = [entry, *(one for one in among
                     if all(one.get(name) == entry[name] for name in KIND[1:5]))]  # fmt: skip
    for name in KIND[5:]:
        if len({one.get(name) for one in same if one["kernel"] == kernel}) > 1:
            label += f" {entry.get(name) or 'unknown'}"
    if len({one["kernel"] for one in same}) > 1:
        label += f" by {elide(kernel, _KERNEL)}"
    return label


def collective_label(entry: Entry) -> str:
    """``all-gather of 384 MiB``."""
    name = (entry["op"] or "unknown operation").replace("_", "-")
    size = "unknown size" if entry["bytes"] is None else format_memory(entry["bytes"])
    return f"{name} of {size}"


def row_label(row: SweepRow, among: Iterable[SweepRow] = ()) -> str:
    """What a row compares, without its point; with the kernel where `among` has another one of the
    same sizes."""
    if "kernel" in row.what:
        return gemm_label(row.what, [one.what for one in among if "kernel" in one.what])
    return collective_label(row.what) if "op" in row.what else ""


def longer(ratio: float) -> str:
    """``3.1 % longer`` of the ratio 1.031, ``3.1 % less`` of 0.969."""
    if ratio >= _MOST_PERCENT:
        return f"{ratio:,.0f} times as long"
    return f"{abs(100 * (ratio - 1)):.1f} % {'longer' if ratio >= 1 else 'less'}"


def interval_text(low: float | None, high: float | None) -> str:
    """`` (+1.2 % to +4.3 %)``; "" without an interval."""
    text = format_interval(low, high)
    return f" ({text})" if text else ""


def change_text(row: SweepRow) -> str:
    """The change of a row in percent with its interval."""
    found = row.comparison
    return format_change(found.ratio) + interval_text(found.ratio_low, found.ratio_high)


def figure_text(value: float, unit: str) -> str:
    """A figure with its unit and sensible digits."""
    if unit == "×":
        return f"{value:.3f}×"
    return f"{value:,.{0 if value >= 100 and unit == 'µs' else 2}f} {unit}"
