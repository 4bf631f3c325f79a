"""Runs a dispatch once more under the tools of compute-sanitizer, each in a process of its own.

A tool slows kernels down by 10 to 100 times, so the launch uses a small shape that the tile does
not divide, where most out-of-bounds accesses occur. Its own shape is used only if that one is
rejected.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Stage
from gemmetry.domain.target import TargetKind
from gemmetry.engine.dispatches.sanitized import LAUNCHING, SanitizedRequest
from gemmetry.engine.workers.protocol import Hello
from gemmetry.verification.checks.results import CheckResult, not_applicable
from gemmetry.verification.companions import Companions, tail_operations
from gemmetry.verification.sanitizer import (
    PROGRAM,
    SanitizedRun,
    find_sanitizer,
    sanitizer_command,
    sanitizer_result,
)

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
        return not_applicable(tool, f"{PROGRAM} is for CUDA devices")
    program = find_sanitizer(os.environ)
    if program is None:
        return not_applicable(tool, f"{PROGRAM} is neither on PATH nor in CUDA_HOME/bin")
    seconds = DEADLINE_SHARE * hello.settings.deadlines_s[Stage.VERIFY]
    return sanitizer_result(_run(program, dispatch, hello, tool, seconds))


def _run(
    program: Path, dispatch: Dispatch, hello: Hello, tool: str, seconds: float
) -> SanitizedRun:
    names = tuple(operation_name(operation) for operation in _operations(dispatch))
    request = SanitizedRequest(hello, names, dispatch.configuration, seconds)
    command = [sys.executable, "-m", "gemmetry.engine.dispatches.sanitized"]
    status: int | None
    process = subprocess.Popen(
        sanitizer_command(program, tool, command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **_ENVIRONMENT},
    )
    try:
        printed, _ = process.communicate(msgspec.msgpack.encode(request), timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the tool, and the program that it runs
        printed, _ = process.communicate()
        status = None
    output = printed[-MAX_OUTPUT_BYTES:].decode(errors="replace")
    return SanitizedRun(
        tool=tool, output=output, status=status, launched=LAUNCHING in output, seconds=seconds
    )


def _operations(dispatch: Dispatch) -> Iterator[Operation]:
    """What to launch, the best candidate first."""
    companions = Companions(build=lambda _: None, tile=dispatch.configuration.tile)
    yield from next(tail_operations(dispatch.operation, companions, thorough=False), ())
    yield dispatch.operation
