"""Records the traces of one dispatch, in its worker."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Buffer, Executable, HostArray
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import TraceFacts
from gemmetry.engine.recording.job import Recording
from gemmetry.observers.torch_profiler import record, trace_names

_SENTINEL = 0xFF
"""Byte that the result is filled with before the first launch: NaN in every float format."""


def record_traces(
    executable: Executable,
    dispatch: Dispatch,
    inputs: Sequence[HostArray],
    job: Recording,
    folder: Path,
    kept: int = 0,
) -> TraceFacts:
    """Run `dispatch` under the profiler and keep what it wrote.

    Args:
        inputs: of ``dispatch.operation``, on the host.
        folder: where the files go; what is there is replaced.
        kept: repeats of an earlier run that lie there and stay; those beyond are recorded. If one
            of their files is gone, all are.

    Raises:
        UnsupportedError, LaunchError: what :func:`gemmetry.observers.torch_profiler.record` says.
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
        # Half a trace, as of a full disk, would be taken for one by whoever reads the folder.
        _remove(folder, stays)
        raise


def _remove(folder: Path, stays: Sequence[Path]) -> None:
    """Remove what is in `folder` but `stays`; the folder too, if nothing stays."""
    if not stays:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path not in stays:
            path.unlink()


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
    """SHA-256 over the array's bytes in the order in which it is stored."""
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()
