"""The program that compute-sanitizer runs: builds one dispatch and launches it once.

``python -m gemmetry.engine.dispatches.sanitized`` reads a request from standard input. Output,
inputs and the memory around them are written before the launch, so that initcheck reports only what
the kernel itself reads uninitialised.
"""

from __future__ import annotations

import math
import signal
import sys
from pathlib import Path

import msgspec

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import DispatchError, GemmetryError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.engine.workers.protocol import Hello
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider
from gemmetry.verification.launching import FLOAT_SENTINELS

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
    hello = request.hello
    provider = load_provider(hello.provider, hello.options)
    workspace = Workspace(generated=Path(hello.generated))
    reason = "no operation was requested"
    for name in request.operations:
        operation = parse_operation(name)
        try:
            executable = build_requested(provider, operation, request, workspace)
        except DispatchError as error:
            reason = error.message
            continue
        try:
            _launch(executable, operation, hello)
        except GemmetryError as error:
            sys.stderr.write(f"{error.message}\n")
            return 1
        return 0
    sys.stderr.write(f"{reason}\n")
    return CANNOT


def build_requested(
    provider: Provider, operation: Operation, request: SanitizedRequest, workspace: Workspace
) -> Executable:
    """The dispatch of `request` with this operation, ready to be launched.

    Raises:
        DispatchError: the provider does not support it, or cannot build it.
    """
    target = request.hello.target
    refusal = provider.supports(operation, target)
    if refusal is not None:
        raise DispatchError(refusal)
    configuration = provider.parse_configuration(request.configuration.name, operation, target)
    dispatch = Dispatch(
        operation, configuration or request.configuration, request.hello.provider, target
    )
    return provider.build(dispatch, workspace)


def _launch(executable: Executable, operation: Operation, hello: Hello) -> None:
    settings, device = hello.settings, executable.device
    arrays = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
    specs = operation.inputs
    buffers = [device.upload(array, spec) for array, spec in zip(arrays, specs, strict=True)]
    output = device.allocate(operation.output)
    device.fill_bytes(output, FLOAT_SENTINELS[0])
    device.synchronize()
    sys.stdout.write(f"{LAUNCHING}\n")
    sys.stdout.flush()
    executable.run(buffers, output)
    device.synchronize()
    executable.close()


if __name__ == "__main__":
    sys.exit(main())
