"""The vocabulary of a sweep's analysis: its points, their files, and the facts of each trace.

A *point* of a sweep is one training run under one configuration of the communication library. Facts
of a trace (:class:`RankFacts`) are read once, by a worker process, and everything else is computed
from them. They hold arrays as bytes, so that they travel between processes as they are, and a
thousand ranks fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gemmetry.domain.units import counted
from gemmetry.formats.events import Int64
from gemmetry.sweeps.rows import GemmKind
from gemmetry.traces.collectives.summary import Collective

Axes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SweepConfiguration:
    """The settings that distinguish a point from others, without the repeat."""

    threads: int | None = None
    channels: int | None = None
    axes: Axes = ()
    """Further axes with their values, by name."""

    @property
    def settings(self) -> list[str]:
        """Each setting, for people: ``256 threads``, ``NCCL_ALGO=Ring``."""
        parts = []
        if self.threads is not None:
            parts.append(counted(self.threads, "thread"))
        if self.channels is not None:
            parts.append(counted(self.channels, "channel"))
        return [*parts, *(f"{name}={value}" for name, value in self.axes)]

    @property
    def label(self) -> str:
        """``256 threads, 8 channels, NCCL_ALGO=Ring``."""
        return ", ".join(self.settings) or "the only configuration"

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts by threads, channels and axes; numbers by value, missing ones first."""
        numbers = (-1 if one is None else one for one in (self.threads, self.channels))
        return (*numbers, tuple((name, natural(value)) for name, value in self.axes))


def natural(value: str) -> tuple[float, str]:
    """Sorts the values of a setting: numbers by value, then other texts."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value


@dataclass(frozen=True, slots=True)
class RankFile:
    """The trace of one rank."""

    path: Path
    rank: int | None
    """As the path states it; the trace itself has precedence (:attr:`RankFacts.rank`)."""
    rank_source: str
    """``name`` or "", like :attr:`~gemmetry.traces.jobs.RankTrace.rank_source`."""
    more: tuple[Path, ...] = ()
    """Further recordings of the rank, which a profiler's schedule with ``repeat`` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training run of a sweep."""

    configuration: SweepConfiguration
    repeat: int = 1
    """Number of the repeat, from 1."""
    folder: Path
    traces: tuple[RankFile, ...] = ()
    outcome: str = "ok"
    """``ok``; ``failed``: the run ended with an error (it may have traces); ``no_traces``: it has
    none; ``not_run``: it belongs to the sweep's grid but has no folder."""
    reason: str = ""
    """Why the outcome is not ``ok``."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``point.json``, which ``gemmetry sweep run`` writes; {} for other sweeps."""
    rocprof: tuple[Path, ...] = ()
    """The folders of rocprofv3's files."""
    log: Path | None = None

    @property
    def label(self) -> str:
        """The configuration, and the repeat where it is not the first."""
        return self.configuration.label + (f", repeat {self.repeat}" if self.repeat > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All points of a sweep, including those that did not run."""

    folder: Path
    points: tuple[Point, ...]
    """By configuration and repeat."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``sweep.json``, which ``gemmetry sweep run`` writes; {} for other sweeps."""
    problems: tuple[str, ...] = ()
    """The parts of the folder that could not be used, one sentence each."""

    @property
    def repeats(self) -> int:
        """The largest number of a repeat."""
        return max((point.repeat for point in self.points), default=1)


class GemmInstances(msgspec.Struct, frozen=True, dict=True):
    """The GEMMs of a trace by start; fields are the bytes of int64 arrays."""

    kinds: bytes = b""
    starts: bytes = b""
    durations: bytes = b""
    overlaps: bytes = b""
    steps: bytes = b""
    pairs: bytes = b""

    @cached_property
    def kind(self) -> Int64:
        """Indices into :attr:`RankFacts.gemm_kinds`."""
        return np.frombuffer(self.kinds, np.int64)

    @cached_property
    def start_ns(self) -> Int64:
        """Starts, in ns since 1970 where the trace records the origin of its times."""
        return np.frombuffer(self.starts, np.int64)

    @cached_property
    def duration_ns(self) -> Int64:
        """Durations in ns."""
        return np.frombuffer(self.durations, np.int64)

    @cached_property
    def overlap_ns(self) -> Int64:
        """Part of the duration during which communication ran on the same device, in ns."""
        return np.frombuffer(self.overlaps, np.int64)

    @cached_property
    def step(self) -> Int64:
        """Number of the step; -1: in no step."""
        return np.frombuffer(self.steps, np.int64)

    @cached_property
    def overlapping(self) -> Int64:
        """(pairs, 3) index of a GEMM, index into :attr:`RankFacts.communication`, and the ns during
        which both ran."""
        return np.frombuffer(self.pairs, np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self.kinds) // 8


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a rank: its window on the GPU, and what ran on the device within it, in ns.

    The window is from the first start to the last end of the step's work (``traces/summary.py``);
    in a trace without work on a GPU it is the profiler's mark on the host. Compute, exposed
    communication, exposed copies and idle add up to the window exactly."""

    number: int
    start_ns: int
    """In ns since 1970 where the trace records the origin of its times, like `end_ns`."""
    end_ns: int
    source: str
    """``launches``, ``gpu`` (:attr:`~gemmetry.traces.summary.Step.source`), or ``host``: the mark
    in a trace without work on a GPU."""
    compute_ns: int
    """Time in which anything computes: kernels that do not communicate, and fills."""
    exposed_comm_ns: int
    """Time in which communication runs and nothing computes."""
    exposed_copy_ns: int
    """Time in which copies run and nothing else."""
    idle_ns: int
    comm_ns: int
    """All time in which communication runs."""

    @property
    def window_ns(self) -> int:
        """Length of the step."""
        return self.end_ns - self.start_ns


class CommunicationKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One communication kernel, a copy between GPUs, or an operator that communicates on the
    host."""

    collective: Collective
    """What it communicates and when. A copy between GPUs has the operation ``copy``."""
    kernel: str
    """Full name."""
    written: str = ""
    """The operation as the trace names it (``_allgather_base``), else as PyTorch would; "" where it
    is not known."""
    grid: tuple[int, int, int]
    """Thread blocks; (0, 0, 0) where it is not known."""
    block: tuple[int, int, int]
    """Threads of a block; (0, 0, 0) where it is not known."""
    step: int
    """Number of the step; -1: in no step."""


class KernelTimes(msgspec.Struct, frozen=True, dict=True):
    """The time of each kernel in each step, without communication; of operators and annotations in
    a trace without work on a GPU."""

    names: tuple[str, ...] = ()
    """Readable forms; GEMMs with their shape."""
    sums: bytes = b""

    @cached_property
    def per_step(self) -> Int64:
        """(steps, kernels) in ns, by :attr:`RankFacts.steps` and :attr:`names`."""
        table = np.frombuffer(self.sums, np.int64)
        return table.reshape(-1, len(self.names)) if self.names else table.reshape(0, 0)


class TraceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a whole trace in ns, as TraceLens' ``gpu_timeline`` defines them
    (``traces/summary.py``); all 0 without work on a GPU."""

    window_ns: int = 0
    busy_ns: int = 0
    compute_ns: int = 0
    comm_ns: int = 0
    exposed_comm_ns: int = 0
    copy_ns: int = 0
    exposed_copy_ns: int = 0
    idle_ns: int = 0


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the analysis of a sweep uses of one trace."""

    file: str
    rank: int | None
    """From the trace, else from the path."""
    rank_source: str
    """``trace``, ``name`` or ""."""
    process: int | None = None
    """Number of the process in its operating system."""
    world_size: int | None
    job: str | None
    host: str | None
    device: str
    """Product name of the GPU; "" where it is not known."""
    gpus_of_node: int = 0
    """GPUs of the node that the trace lists; 0: it lists none."""
    on_gpu: bool
    """Whether the trace has work on a GPU; otherwise times are those of operators on the host."""
    versions: dict[str, str]
    """Versions recorded in the trace, by their keys there (``nccl_version`` ...)."""
    events: int
    base_ns: int
    span: tuple[int, int]
    """First start and last end of work on GPUs, ns; (0, 0) without any."""
    partial: bool
    """Events are missing: the file ends early, or some of it cannot be read."""
    problems: tuple[str, ...]
    times: TraceTimes
    steps: tuple[StepFacts, ...]
    gemm_kinds: tuple[GemmKind, ...]
    gemms: GemmInstances
    communication: tuple[CommunicationKernel, ...]
    """By start."""
    kernel_times: KernelTimes = KernelTimes()
