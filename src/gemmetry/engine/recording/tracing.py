"""Records the traces of one dispatch, in its worker."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Buffer, Executable, HostArray
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import TraceFacts
from gemmetry.engine.recording.job import Recording
from gemmetry.formats.files import remove
from gemmetry.observers.torch_profiler import record, trace_names

_SENTINEL = 0xFF
"""The byte with which the result is filled before the first launch: NaN in every float format."""


def record_traces(
    executable: Executable,
    dispatch: Dispatch,
    inputs: Sequence[HostArray],
    job: Recording,
    folder: Path,
    kept: int = 0,
) -> TraceFacts:
    """Run `dispatch` under the profiler and keep its files.

    Args:
        inputs: the inputs of ``dispatch.operation``, on the host.
        folder: the folder of the files, whose contents are replaced.
        kept: the repeats of an earlier run that are kept; only further ones are recorded. If one of
            their files is missing, all are recorded.

    Raises:
        UnsupportedError, LaunchError: see :func:`gemmetry.observers.torch_profiler.record`.
        OutOfMemoryError: inputs and output do not fit.
    """
    stays = [folder / name for name in trace_names(kept)] if kept else []
    if not all(path.is_file() for path in stays):
        kept, stays = 0, []
    _remove(folder, stays)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _recorded(executable, dispatch, inputs, job, folder, kept)
    except BaseException:
        # A reader would take half a trace, as written to a full disk, for a whole one.
        _remove(folder, stays)
        raise


def _remove(folder: Path, stays: Sequence[Path]) -> None:
    """Remove everything from `folder` except `stays`; the folder too, if nothing remains."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir() if stays else [folder]:
            if path not in stays:
                remove(path, inside=folder.parents[1])  # the experiment's


def _recorded(
    executable: Executable,
    dispatch: Dispatch,
    inputs: Sequence[HostArray],
    job: Recording,
    folder: Path,
    kept: int,
) -> TraceFacts:
    operation, device = dispatch.operation, executable.device
    buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
    output = device.allocate(operation.output)
    device.fill_bytes(output, _SENTINEL)
    device.synchronize()
    results: list[Buffer] = [output]

    def launch() -> None:
        results[:] = [executable.run(buffers, output)]

    recorded = record(
        launch,
        device.synchronize,
        folder,
        job.schedule,
        on_gpu=dispatch.target.is_gpu,
        kept=kept,
        about={
            "dispatch": dispatch.name,
            "provider": dispatch.provider,
            "target": dispatch.target.name,
            "seed": job.settings.seed,
            "distribution": job.settings.distribution,
        },
    )
    roles = [spec.role for spec in operation.inputs]
    return TraceFacts(
        folder=str(folder),
        files=recorded.files,
        operators=recorded.operators,
        kernels=recorded.kernels,
        input_sha256=dict(zip(roles, map(digest, inputs), strict=True)),
        output_sha256=digest(device.download(results[0], operation.output)),
    )


def digest(array: HostArray) -> str:
    """SHA-256 over the array's bytes in storage order."""
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()
