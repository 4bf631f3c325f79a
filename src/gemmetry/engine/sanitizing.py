"""The program that compute-sanitizer runs: builds one dispatch and launches it once.

``python -m gemmetry.engine.sanitizing`` reads a request from standard input. Output,
inputs and the memory around them are written before the launch, so that initcheck reports only what
the kernel itself reads uninitialised.

Runs a dispatch once more under the tools of compute-sanitizer, each in a process of its own.

A tool slows kernels down by 10 to 100 times, so the launch uses a small shape that the tile does
not divide, where most out-of-bounds accesses occur. Its own shape is used only if that one is
rejected.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from gemmetry.domain.contracts import Buffer, Executable, Provider
from gemmetry.domain.dispatch import Configuration, Dispatch, TargetKind, parse_operation
from gemmetry.domain.errors import DispatchError, GemmetryError, Stage
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.engine.protocol import Hello
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider
from gemmetry.verification.checks import CheckResult, not_applicable
from gemmetry.verification.companions import Companions, tail_operations
from gemmetry.verification.launching import FLOAT_SENTINELS
from gemmetry.verification.protocol import (
    PROGRAM,
    find_sanitizer,
    sanitizer_command,
    sanitizer_result,
)

LAUNCHING = "gemmetry: launching"
"""Printed just before the launch, so that an earlier failure is not mistaken for a finding."""

CANNOT = 3
"""The exit status if the dispatch could not be built."""


class SanitizedRequest(msgspec.Struct, frozen=True):
    """What to launch: the first of `operations` that the provider can build."""

    hello: Hello
    operations: tuple[str, ...]
    configuration: Configuration
    seconds: float
    """This process ends itself after this time, so that a launch that hangs leaves no process
    behind."""


def main() -> int:
    """Build, launch once and wait. Returns the exit status."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=SanitizedRequest)
    signal.alarm(math.ceil(request.seconds) + 1)
    hello, reason = request.hello, "no operation was requested"
    provider = load_provider(hello.provider, hello.options)
    for name in request.operations:
        operation = parse_operation(name)
        try:
            executable = build_requested(provider, hello, operation, request.configuration)
        except DispatchError as error:
            reason = error.message
            continue
        try:
            output, launch = made_ready(executable, operation, hello)
            executable.device.fill_bytes(output, FLOAT_SENTINELS[0])
            executable.device.synchronize()
            sys.stdout.write(f"{LAUNCHING}\n")
            sys.stdout.flush()
            launch()
            executable.device.synchronize()
            executable.close()
        except GemmetryError as error:
            sys.stderr.write(f"{error.message}\n")
            return 1
        return 0
    sys.stderr.write(f"{reason}\n")
    return CANNOT


def build_requested(
    provider: Provider, hello: Hello, operation: Operation, configuration: Configuration
) -> Executable:
    """A dispatch of `hello`, built.

    Raises:
        DispatchError: the provider does not support or cannot build the dispatch.
    """
    if refusal := provider.supports(operation, hello.target):
        raise DispatchError(refusal)
    own = provider.parse_configuration(configuration.name, operation, hello.target)
    dispatch = Dispatch(operation, own or configuration, hello.provider, hello.target)
    return provider.build(dispatch, hello.workspace())


def made_ready(
    executable: Executable, operation: Operation, hello: Hello
) -> tuple[Buffer, Callable[[], object]]:
    """The output of an executable on its device, and a function that launches it with inputs
    there."""
    settings, device = hello.settings, executable.device
    arrays = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
    specs = operation.inputs
    buffers = [device.upload(array, spec) for array, spec in zip(arrays, specs, strict=True)]
    output = device.allocate(operation.output)
    return output, partial(executable.run, buffers, output)


DEADLINE_SHARE = 0.9
"""The share of the stage's deadline that one tool may take, so that it ends before the worker is
ended."""

_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""torch's allocator hands out parts of large blocks, and memcheck treats their surroundings as
valid (PyTorch documentation, "CUDA environment variables")."""

SANITIZED = TargetKind.CUDA

MAX_OUTPUT_BYTES = 1 << 20
"""The part of a tool's output that is examined."""


def sanitize(dispatch: Dispatch, hello: Hello, tool: str) -> CheckResult:
    """Launch `dispatch` once under `tool`. Returns the check of that name."""
    if dispatch.target.kind is not SANITIZED:
        return not_applicable(f"{PROGRAM} is for CUDA devices", tool)
    if (program := find_sanitizer(os.environ)) is None:
        return not_applicable(f"{PROGRAM} is neither on PATH nor in CUDA_HOME/bin", tool)
    seconds = DEADLINE_SHARE * hello.settings.deadlines_s[Stage.VERIFY]
    names = tuple(operation_name(operation) for operation in _operations(dispatch))
    request = SanitizedRequest(hello, names, dispatch.configuration, seconds)
    process = subprocess.Popen(
        sanitizer_command(program, tool, [sys.executable, "-m", "gemmetry.engine.sanitizing"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **_ENVIRONMENT},
    )
    status: int | None = None
    try:
        printed, _ = process.communicate(msgspec.msgpack.encode(request), timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the tool, and the program that it runs
        printed, _ = process.communicate()
    output = printed[-MAX_OUTPUT_BYTES:].decode(errors="replace")
    launched = LAUNCHING in output
    return sanitizer_result(tool, output, status, launched=launched, seconds=seconds)


def _operations(dispatch: Dispatch) -> Iterator[Operation]:
    """What to launch, the best candidate first."""
    companions = Companions(build=lambda _: None, tile=dispatch.configuration.tile)
    yield from next(tail_operations(dispatch.operation, companions, thorough=False), ())
    yield dispatch.operation


if __name__ == "__main__":
    sys.exit(main())
