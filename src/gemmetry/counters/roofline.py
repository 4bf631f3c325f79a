"""The hierarchical roofline of a launch: its operations over the bytes of each level of memory.

Peaks are those of the report where it has them: ``peak_sustained`` of a counter is its most per
cycle, to be multiplied by the clock of its unit. Otherwise they come from the table of GPUs. Two
roofs of arithmetic are given: that of the datasheet, and that at the clock of this launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.counters.facts import Facts, device_of
from gemmetry.counters.work import main_path, operations_by_path
from gemmetry.domain.errors import UnknownNameError
from gemmetry.formats.counters.launches import ProfiledLaunch

_SHARED_BYTES = 128
"""Bytes of a wavefront: 32 banks of 4 bytes (CUDA C++ Programming Guide, shared memory)."""
_LDS_BYTES = 128
"""Bytes that the LDS of a compute unit moves in a cycle (CDNA3 instruction set manual)."""
_RATE_CLASSES = {
    "bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp8": "fp8", "int8": "s8", "fp64": "f64",
    "fp32": "f32", "vector fp32": "f32", "vector fp64": "f64",
}  # fmt: skip
_FFMA_PER_CYCLE = "derived__sm__sass_thread_inst_executed_op_{}fma_pred_on_x2"
_L2_PER_CYCLE = "derived__lts__lts2xbar_bytes.sum.peak_sustained"
_L2_CLOCK = "lts__cycles_elapsed.avg.per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLevel:
    """A level of memory."""

    name: str
    bytes: float
    bytes_per_s: float
    peak_bytes_per_s: float | None
    intensity: float | None
    """Operations per byte of this level; None where operations were not counted."""
    source: str
    """Source of the peak; "" where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRoofline:
    """Position of a launch, and the roofs above it. Rates are per second."""

    path: str | None
    """The format and unit of its operations, such as ``bf16`` or ``vector fp32``."""
    operations: float | None
    operations_per_s: float | None
    datasheet_peak: float | None
    clock_peak: float | None
    """The peak at the clock of this launch."""
    clock_hz: float | None
    levels: tuple[RoofLevel, ...]
    source: str
    """Source of the peaks of arithmetic."""

    @property
    def attainable(self) -> float | None:
        """The lowest roof: the peak at this clock, or intensity times bandwidth of a level."""
        roofs = [
            level.intensity * level.peak_bytes_per_s
            for level in self.levels
            if level.intensity is not None and level.peak_bytes_per_s is not None
        ]
        if peak := self.clock_peak or self.datasheet_peak:
            roofs.append(peak)
        return None if self.operations is None else min(roofs, default=None)


def roofline_of(launch: ProfiledLaunch) -> LaunchRoofline | None:
    """The roofline of a launch; None where its duration was not recorded."""
    facts = Facts(launch)
    time = facts.duration_ns
    if not time:
        return None
    seconds, levels = time / 1e9, (_dram, _l2, _shared)
    paths = operations_by_path(facts)
    path = main_path(paths)
    operations = None if path is None else paths[path]
    device = device_of(facts)
    per_cycle = _peak_per_cycle(facts, path)
    clock, highest = facts.value("sm_clock"), facts.value("sm_clock_max")
    sheet = None
    source = ""
    if device is not None and path in _RATE_CLASSES:
        sheet = device.peaks.get(_RATE_CLASSES[path or ""])
        source = f"datasheet: {device.name}" if sheet else ""
    if sheet is None and per_cycle and highest:
        sheet, source = per_cycle * highest, "the report's peak per cycle at the highest clock"
    return LaunchRoofline(
        path=path,
        operations=operations,
        operations_per_s=None if operations is None else operations / seconds,
        datasheet_peak=sheet,
        clock_peak=per_cycle * clock if per_cycle and clock else None,
        clock_hz=clock,
        levels=tuple(filter(None, (of(facts, operations, seconds) for of in levels))),
        source=source,
    )


def _peak_per_cycle(facts: Facts, path: str | None) -> float | None:
    """The most operations on `path` in a cycle of all multiprocessors, dense."""
    if path is None:
        return None
    if path.startswith("vector "):
        letter = {"fp32": "f", "fp64": "d"}.get(path.removeprefix("vector "))
        return None if letter is None else facts.launch.value(_FFMA_PER_CYCLE.format(letter))
    try:
        return facts.value(f"tensor_peak_{path}")
    except UnknownNameError:
        return None


def _level(
    name: str, moved: float | None, operations: float | None, seconds: float, peak: float | None,
    source: str,
) -> RoofLevel | None:  # fmt: skip
    if not moved:
        return None
    return RoofLevel(
        name=name, bytes=moved, bytes_per_s=moved / seconds, peak_bytes_per_s=peak,
        intensity=None if operations is None else operations / moved,
        source=source if peak is not None else "",
    )  # fmt: skip


def _dram(facts: Facts, operations: float | None, seconds: float) -> RoofLevel | None:
    moved = facts.total("dram_read_bytes", "dram_write_bytes")
    if facts.lacks("dram_read_bytes", "dram_write_bytes") or moved is None:
        return None
    per_cycle, clock = facts.value("dram_peak_bytes"), facts.value("dram_clock")
    peak, source = None, ""
    if per_cycle and clock:
        peak, source = per_cycle * clock, "the report's peak per cycle at the clock of the memory"
    elif (device := device_of(facts)) is not None:
        peak, source = device.bandwidth_bytes_per_s, f"datasheet: {device.name}"
    return _level("device memory", moved.value, operations, seconds, peak, source)


def _l2(facts: Facts, operations: float | None, seconds: float) -> RoofLevel | None:
    # What L1 receives would count a multicast at each receiver.
    exchanged = facts.total("l2_read_bytes_from_sm", "l2_write_bytes_from_sm")
    if exchanged is None:
        exchanged = facts.get("l2_bytes")
    per_cycle, clock = facts.launch.value(_L2_PER_CYCLE), facts.launch.value(_L2_CLOCK)
    peak = per_cycle * clock if per_cycle and clock else None
    return _level(
        "L2 cache", None if exchanged is None else exchanged.value, operations, seconds, peak,
        "the report's peak per cycle at the clock of the L2 cache",
    )  # fmt: skip


def _shared(facts: Facts, operations: float | None, seconds: float) -> RoofLevel | None:
    wavefronts, units = facts.value("shared_wavefronts"), facts.value("sm_count")
    clock = facts.value("sm_clock")
    width = _LDS_BYTES if facts.is_amd else _SHARED_BYTES
    peak = units * clock * width if units and clock else None
    return _level(
        "shared memory", None if wavefronts is None else wavefronts * width, operations, seconds,
        peak, f"{width} bytes per cycle and multiprocessor",
    )  # fmt: skip
