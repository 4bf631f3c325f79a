"""Observers attached to a sampling round, one file each; they observe the device, not the kernel.

An observer that cannot read its device reports nothing: telemetry never fails a run.
"""

from __future__ import annotations

from gemmetry.domain.contracts import Observer
from gemmetry.domain.target import Target, TargetKind
from gemmetry.observers.amdsmi import AmdSmiObserver
from gemmetry.observers.cpu import CpuObserver
from gemmetry.observers.nvml import NvmlObserver


def make_observers(target: Target) -> list[Observer]:
    """The observers for a device; none for the simulated device and compile-only targets."""
    if target.index is None:
        return []
    if target.kind is TargetKind.CPU:
        return [CpuObserver()]
    if target.kind is TargetKind.CUDA:
        return [NvmlObserver(target.index, target.product)]
    if target.kind is TargetKind.HIP:
        return [AmdSmiObserver(target.index)]
    return []
