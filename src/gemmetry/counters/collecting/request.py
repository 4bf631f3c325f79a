"""What is to be collected, of which kernels of which command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ToolName = Literal["ncu", "rocprofv3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """What to collect.

    Attributes:
        command: the application and its arguments.
        metric_set: a name of :data:`~gemmetry.counters.collecting.sets.SETS`.
        sections: of Nsight Compute, in addition.
        metrics: ids of metrics or counters, in addition.
        kernel: a regular expression that is searched for in the demangled names of kernels; None:
            all but those of collectives.
        collectives: profile the kernels of collectives, too. Replayed alone, they wait for ranks
            that wait for them, and may hang.
        launch_skip: matching launches to leave out at the beginning.
        launch_count: matching launches to profile; None: all that follow.
        nvtx: names or expressions of NVTX ranges; launches in one of them are profiled.
        clock_control: ``none`` leaves the clocks alone, ``base`` fixes them while counting.
        cache_control: ``all`` empties caches before each pass, ``none`` does not.
        replay_mode: what is run again for each pass.
        target_processes: ``all``: also those that the application starts; ``application-only``.
        records_ranges: record the NVTX ranges of each launch, also where none is chosen by them.
        from_start: profile from the beginning; otherwise the application starts and stops the
            profiler (``cuProfilerStart``).
    """

    command: tuple[str, ...]
    metric_set: str = "gemm"
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    kernel: str | None = None
    collectives: bool = False
    launch_skip: int = 0
    launch_count: int | None = None
    nvtx: tuple[str, ...] = ()
    clock_control: str = "none"
    cache_control: str = "all"
    replay_mode: str = "kernel"
    target_processes: str = "all"
    records_ranges: bool = False
    from_start: bool = True


@dataclass(frozen=True, slots=True)
class CollectFiles:
    """The files of one collection, which share a stem."""

    stem: Path

    @classmethod
    def at(cls, output: Path) -> CollectFiles:
        """Those of ``x.ncu-rep``, or those in a folder."""
        is_report = output.suffix == ".ncu-rep"
        return cls(output.with_suffix("") if is_report else output / "counters")

    def _file(self, end: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}{end}")

    @property
    def report(self) -> Path:
        """What ncu writes."""
        return self._file(".ncu-rep")

    @property
    def table(self) -> Path:
        """The report's raw page, which can be read without NVIDIA's software."""
        return self._file(".csv")

    @property
    def description(self) -> Path:
        """How it was collected, as JSON."""
        return self._file(".json")

    @property
    def application_log(self) -> Path:
        """Output of the application."""
        return self._file(".application.log")

    @property
    def profiler_log(self) -> Path:
        """Output of the profiler."""
        return self._file(".profiler.log")

    @property
    def passes(self) -> Path:
        """What rocprofv3 reads: the counters of each pass."""
        return self._file(".rocprofv3.yaml")

    def all(self) -> tuple[Path, ...]:
        """Every file that a collection may write."""
        return (self.report, self.table, self.description, self.application_log,
                self.profiler_log, self.passes)  # fmt: skip
