"""The program whose counters are collected: builds one dispatch, and launches it once.

``python -m gemmetry.engine.dispatches.counted FILE`` reads a request from a file, as a profiler may
keep standard input to itself. Whatever a provider does at a first launch is over before the
profiler is started.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.errors import GemmetryError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import TargetKind
from gemmetry.engine.dispatches.sanitized import CANNOT, SanitizedRequest, build_requested
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider

WARM_UP = 2
"""Launches before the one that is profiled: libraries choose and load kernels at the first."""


def main(path: Path) -> int:
    """Build, warm up, and launch once under the profiler. Returns the exit status."""
    request = msgspec.msgpack.decode(path.read_bytes(), type=SanitizedRequest)
    hello = request.hello
    operation = parse_operation(request.operations[0])
    try:
        provider = load_provider(hello.provider, hello.options)
        workspace = Workspace(generated=Path(hello.generated))
        executable = build_requested(provider, operation, request, workspace)
        device, settings = executable.device, hello.settings
        arrays = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
        buffers = [
            device.upload(array, spec) for array, spec in zip(arrays, operation.inputs, strict=True)
        ]
        output = device.allocate(operation.output)
        for _ in range(WARM_UP):
            executable.run(buffers, output)
        device.synchronize()
        profiler = _profiler(hello.target.kind)
        if profiler is not None:
            profiler.cuProfilerStart()
        executable.run(buffers, output)
        device.synchronize()
        if profiler is not None:
            profiler.cuProfilerStop()
        executable.close()
    except GemmetryError as error:
        sys.stderr.write(f"{error.message}\n")
        return CANNOT
    return 0


def _profiler(kind: TargetKind) -> Any:
    """The driver, whose calls to start and stop ncu watches for; None on other devices."""
    return ctypes.CDLL("libcuda.so.1") if kind is TargetKind.CUDA else None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
