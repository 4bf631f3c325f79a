"""The program whose counters are collected: builds dispatches of one provider, and launches each
once while it is profiled.

``python -m gemmetry.engine.dispatches.counted FILE`` reads a request from a file, as a profiler may
keep standard input to itself. Whatever a provider does at a first launch is over before the
profiler is started. The launch of each of several dispatches lies in an NVTX range of its own
(:func:`range_name`), and the line :data:`COUNTED` with its number is printed after it.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import DispatchError, GemmetryError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import TargetKind
from gemmetry.engine.dispatches.sanitized import CANNOT, SanitizedRequest, build_requested
from gemmetry.engine.workers.protocol import Hello
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider

WARM_UP = 2
"""Launches before the one that is profiled: libraries choose and load kernels at the first."""


COUNTED = "gemmetry: counted"
"""Printed with the number of a dispatch once it was profiled as a whole."""


class CountedRequest(msgspec.Struct, frozen=True):
    """Which dispatches to launch: their operations with configurations."""

    hello: Hello
    dispatches: tuple[tuple[str, Configuration], ...]


def range_name(number: int) -> str:
    """The NVTX range of the dispatch with this place in a request."""
    return f"gemmetry_dispatch_{number}"


def main(path: Path) -> int:
    """Build, warm up, and launch each once under the profiler. Returns the exit status:
    :data:`CANNOT` if none could be launched."""
    request = msgspec.msgpack.decode(path.read_bytes(), type=CountedRequest)
    count = len(request.dispatches)
    launched = 0
    try:
        provider = load_provider(request.hello.provider, request.hello.options)
        for number in range(count):
            launched += _was_launched(provider, request, number)
    except GemmetryError as error:
        sys.stderr.write(f"{error.message}\n")
    return 0 if launched else CANNOT


def _was_launched(provider: Provider, request: CountedRequest, number: int) -> bool:
    """Launch a dispatch; without it, the others are launched nevertheless."""
    try:
        _launch(provider, request, number)
    except GemmetryError as error:
        sys.stderr.write(f"{error.message}\n")
        return False
    sys.stdout.write(f"{COUNTED} {number}\n")
    sys.stdout.flush()
    return True


def _launch(provider: Provider, request: CountedRequest, number: int) -> None:
    hello = request.hello
    name, configuration = request.dispatches[number]
    operation = parse_operation(name)
    built = SanitizedRequest(hello, (name,), configuration, 0.0)
    workspace = Workspace(generated=Path(hello.generated))
    executable = build_requested(provider, operation, built, workspace)
    device, settings = executable.device, hello.settings
    arrays = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
    buffers = [
        device.upload(array, spec) for array, spec in zip(arrays, operation.inputs, strict=True)
    ]
    output = device.allocate(operation.output)
    for _ in range(WARM_UP):
        executable.run(buffers, output)
    device.synchronize()
    kind = hello.target.kind
    profiler = _profiler(kind)
    # Of a single dispatch, every launch is its own.
    named = _range(kind, range_name(number)) if len(request.dispatches) > 1 else nullcontext()
    with named:
        if profiler is not None:
            profiler.cuProfilerStart()
        try:
            executable.run(buffers, output)
            device.synchronize()
        finally:
            if profiler is not None:
                profiler.cuProfilerStop()
    executable.close()


def _range(kind: TargetKind, name: str) -> AbstractContextManager[object]:
    """An NVTX range, on devices that have them.

    Raises:
        DispatchError: torch, by which it is opened, is not installed.
    """
    if kind is not TargetKind.CUDA:
        return nullcontext()
    try:
        from torch.cuda import nvtx
    except ImportError as error:
        raise DispatchError(f"NVTX ranges need torch: {error}") from error
    opened: AbstractContextManager[object] = nvtx.range(name)
    return opened


def _profiler(kind: TargetKind) -> Any:
    """The driver, whose calls to start and stop ncu watches for; None on other devices."""
    return ctypes.CDLL("libcuda.so.1") if kind is TargetKind.CUDA else None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
