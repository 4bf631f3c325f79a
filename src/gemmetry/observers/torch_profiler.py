"""Records launches under torch's profiler: Kineto traces, and a Chakra execution trace.

It works wherever torch does, on CUDA and ROCm through the same calls. Everything that the process
runs is recorded, so kernels of other providers on a GPU appear too; operators are only torch's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.domain.errors import LaunchError, StorageError, UnsupportedError
from gemmetry.domain.settings import TraceSchedule
from gemmetry.formats.events import GpuKind
from gemmetry.formats.kineto.reading import read_kineto

CHAKRA_NAME = "CPU_trace.json"
"""The name that the grid tracing document gives the execution trace."""

KINETO_SUFFIX = ".pt.trace.json"

_SMALL_TRACE = 1 << 20
"""Size in bytes of a small trace."""

METADATA_KEY = "gemmetry"
"""Key at the top level of a Kineto trace whose value describes the recording."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Result of a recording."""

    files: tuple[str, ...]
    """File names in the folder, the execution trace first."""
    operators: int
    kernels: int


def trace_names(repeats: int) -> list[str]:
    """The files of a recording: the execution trace, then a Kineto trace for each repeat."""
    return [CHAKRA_NAME, *(_kineto_name(number) for number in range(1, repeats + 1))]


def _kineto_name(number: int) -> str:
    return f"repeat_{number:02d}{KINETO_SUFFIX}"


def reason_against_recording() -> str | None:
    """None if this process can record, else what to install."""
    if importlib.util.find_spec("torch") is None:
        return "recording traces needs torch's profiler; pip install 'gemmetry[torch]'"
    return None


def record(
    launch: Callable[[], object],
    synchronize: Callable[[], object],
    folder: Path,
    schedule: TraceSchedule,
    *,
    on_gpu: bool,
    about: Mapping[str, Any],
    kept: int = 0,
) -> Recorded:
    """Launch as often as `schedule` specifies and write the traces into the existing `folder`.

    One step is one launch and the wait for it, so that a kernel lies within the step that launched
    it. Every repeat writes a file ``repeat_01.pt.trace.json`` ... The execution trace covers the
    first repeat: its ``rf_id`` are that Kineto trace's ``Record function id``, and a linker would
    find no times for operators of other repeats. With ``schedule.chakra_all_steps`` it holds every
    launch instead, including those of waiting and warm-up.

    Args:
        about: JSON values that go into each Kineto trace, under :data:`METADATA_KEY`.
        kept: number of repeats whose files, and the execution trace, already are in `folder`; they
            are kept, and only further repeats are launched.

    Raises:
        StorageError: the disk is full.
        UnsupportedError: torch is not installed, or the trace contains nothing of the launch.
        LaunchError: the launch ran on a GPU, but no kernel was recorded.
    """
    reason = reason_against_recording()
    if reason is not None:
        raise UnsupportedError(reason)
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
    from torch.profiler import schedule as torch_schedule

    remaining = replace(schedule, repeats=schedule.repeats - kept)
    earlier = [(name, *_count(folder / name)) for name in trace_names(kept)[1:]]
    counts: list[tuple[str, int, int]] = []
    # The execution trace exists where further repeats are added to a grid.
    observer = None if kept else ExecutionTraceObserver()
    if observer is not None:
        observer.register_callback(str(folder / CHAKRA_NAME))
    of_all = observer if schedule.chakra_all_steps else None

    def keep(profiler: Any) -> None:
        name = _kineto_name(kept + len(counts) + 1)
        profiler.export_chrome_trace(str(folder / name))
        if observer is not None and of_all is None:
            observer.unregister_callback()  # Closes the file; harmless from the second repeat on.
        counts.append((name, *_count(folder / name)))

    activities = [ProfilerActivity.CPU]
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)  # ROCm's too.
    with warnings.catch_warnings():
        # Warnings that it keeps only the last repeat (each is written when it ends), and that a
        # schedule without warm-up skews results (which was requested).
        warnings.filterwarnings("ignore", message=".*Profiler ", category=UserWarning)
        profiler = profile(
            activities=activities,
            schedule=torch_schedule(
                wait=remaining.wait_steps,
                warmup=remaining.warmup_steps,
                active=remaining.active_steps,
                repeat=remaining.repeats,
            ),
            on_trace_ready=keep,
            record_shapes=True,
            execution_trace_observer=None if of_all is not None else observer,
        )
        profiler.preset_metadata_json(METADATA_KEY, json.dumps(about))
        with _observed(of_all), profiler:
            for _ in range(remaining.steps):
                launch()
                synchronize()
                profiler.step()
    _check(counts, remaining, on_gpu)
    counts = earlier + counts
    return Recorded(
        tuple(trace_names(schedule.repeats)),
        sum(operators for _, operators, _ in counts),
        sum(kernels for _, _, kernels in counts),
    )


@contextlib.contextmanager
def _observed(observer: Any) -> Iterator[None]:
    """Record everything run within the context in an execution trace; None: do nothing."""
    if observer is None:
        yield
        return
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()


def _count(path: Path) -> tuple[int, int]:
    """Numbers of operators and kernels in a Kineto trace, read back from the file."""
    with path.open("rb") as file:
        rows = read_kineto(file)
    if rows is None or rows.partial:
        _check_room(path.parent)
        what = "wrote no trace events into" if rows is None else "did not end"
        raise LaunchError(f"torch's profiler {what} {path.name}")
    kernels = int(np.count_nonzero(rows.gpu.kind == GpuKind.KERNEL))
    return len(rows.operators.name), kernels


def _check_room(folder: Path) -> None:
    """Check that traces can be written, as the profiler does not report write errors.

    Raises:
        StorageError: the folder cannot hold a file of the size of a small trace.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_SMALL_TRACE))
            file.flush()
    except OSError as error:
        raise StorageError(
            f"cannot write traces into {folder}: {error.strerror or error}",
            hint="Free some space, and run the same command again.",
        ) from error


def _check(counts: list[tuple[str, int, int]], schedule: TraceSchedule, on_gpu: bool) -> None:
    if len(counts) != schedule.repeats:
        raise LaunchError(
            f"torch's profiler ended {len(counts)} of {schedule.repeats} repeats",
            hint="Run it again; the profiler's output is in the worker's log.",
        )
    for name, operators, kernels in counts:
        if on_gpu and kernels == 0:
            raise LaunchError(
                f"torch's profiler recorded no GPU kernel in {name}",
                hint="Another profiler may be using the GPU, or this build of torch lacks CUPTI "
                "or roctracer.",
            )
        if operators == 0 and kernels == 0:
            raise UnsupportedError(
                "torch's profiler does not record launches that bypass torch",
                hint="Record --providers torch, or user kernels that call torch.",
            )
