"""torch.profiler around the steps; one compressed trace for each rank and recording."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gemmetry.formats.files import remove
from gemmetry.observers.torch_profiler import KINETO_SUFFIX, METADATA_KEY
from gemmetry.training.keys import ProfilingKeys
from gemmetry.training.workload.files import whole_file
from gemmetry.training.workload.ranks import Ranks

_END_BYTES = 64
"""Read from the end of a trace to see whether it is complete."""

_COMPRESSION = 6
"""gzip's own default; Python's, 9, takes several times as long for a few percent."""

_CHUNK_BYTES = 1 << 20


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
        with whole_file(trace_path(folder, ranks.rank, keys, written)) as partial:
            _export(profiler, partial)

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


def _export(profiler: Any, path: Path) -> None:
    """Write the trace, compressed. torch's own compression writes line by line, which takes three
    times as long.

    Raises:
        OSError: the trace does not fit; the profiler does not report that by itself.
    """
    plain = path.with_suffix(".plain")
    try:
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as trace:
            trace.seek(max(0, plain.stat().st_size - _END_BYTES))
            if not trace.read().rstrip().endswith(b"}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            trace.seek(0)
            with gzip.open(path, "wb", compresslevel=_COMPRESSION) as file:
                shutil.copyfileobj(trace, file, _CHUNK_BYTES)
    finally:
        remove(plain, inside=path.parent)
