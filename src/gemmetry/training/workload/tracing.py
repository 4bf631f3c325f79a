"""torch.profiler around the steps; one compressed trace for each rank and recording."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gemmetry.observers.torch_profiler import KINETO_SUFFIX, METADATA_KEY
from gemmetry.training.keys import ProfilingKeys
from gemmetry.training.workload.files import completed
from gemmetry.training.workload.ranks import Ranks


def trace_path(folder: Path, rank: int, keys: ProfilingKeys, number: int) -> Path:
    """Where recording `number`, counted from 1, of `rank` is written."""
    stem = keys.trace_filename.removesuffix(".json")
    suffix = "" if number == 1 else f"_{number:02d}"
    return folder / "torch_profiler" / f"rank{rank}" / f"{stem}{suffix}{KINETO_SUFFIX}.gz"


@contextlib.contextmanager
def recorded(
    keys: ProfilingKeys, folder: Path, ranks: Ranks, about: Mapping[str, Any]
) -> Iterator[Callable[[], None]]:
    """Record the steps of the block, at the end of each of which it calls what this yields.

    Args:
        about: JSON values that go into each trace, under ``gemmetry``.

    Raises:
        StorageError: a trace cannot be written.
    """
    if not keys.enabled:
        yield lambda: None
        return
    from torch.profiler import ProfilerActivity, profile, schedule

    written = 0

    def write(profiler: Any) -> None:
        nonlocal written
        written += 1
        with completed(trace_path(folder, ranks.rank, keys, written)) as partial:
            profiler.export_chrome_trace(str(partial))

    activities = [ProfilerActivity.CPU]
    if ranks.on_gpu:
        activities.append(ProfilerActivity.CUDA)  # ROCm's too.
    with warnings.catch_warnings():
        # Warnings that only the last recording is kept (each is written when it ends), and that a
        # schedule without warm-up skews results (which was requested).
        warnings.filterwarnings("ignore", message=".*Profiler ", category=UserWarning)
        profiler = profile(
            activities=activities,
            schedule=schedule(
                wait=keys.wait, warmup=keys.warmup, active=keys.active, repeat=keys.repeat
            ),
            on_trace_ready=write,
            record_shapes=keys.record_shapes,
            profile_memory=keys.profile_memory,
            with_stack=keys.with_stack,
            with_flops=keys.with_flops,
        )
        profiler.preset_metadata_json(METADATA_KEY, json.dumps(about))
        with profiler:
            yield profiler.step
