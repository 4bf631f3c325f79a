"""Inspects kernel files in a separate process: importing one may crash or never end.

``python -m gemmetry.providers.user_provider.probe`` reads a request and prints the reply, one JSON
document each; output of the files themselves goes to standard error.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.providers.user_provider.kernel import (
    KernelFacts,
    load_kernel,
    name_configurations,
)

_IMPORT_SECONDS = 120.0
"""Long enough for a first ``import torch`` from a slow disk."""

_TAIL_LINES = 12


def inspect_kernels(
    texts: Sequence[str],
    *,
    configurations: Any = None,
    arrays: str | None = None,
    prefix: bool = False,
) -> list[KernelFacts]:
    """The information that :func:`load_kernel` would return, without importing a file into this
    process.

    Args:
        texts: ``path/file.py:function`` each.
        configurations, arrays, prefix: as for :func:`load_kernel`.

    Raises:
        RequestError: a kernel cannot be loaded, or loading it crashes or takes too long.
    """
    if configurations is not None:
        name_configurations(configurations)  # refuses here what JSON cannot carry
    request = {
        "kernels": list(texts),
        "arrays": arrays,
        "configurations": configurations,
        "prefix": prefix,
    }
    return [_read(document) for document in _ask(json.dumps(request).encode(), texts)]


def _ask(request: bytes, texts: Sequence[str]) -> list[dict[str, Any]]:
    # Started like workers, so that modules that can be imported here can be imported there.
    command = [sys.executable, "-m", "gemmetry.providers.user_provider.probe"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            answer, printed = process.communicate(request, timeout=_IMPORT_SECONDS)
        except subprocess.TimeoutExpired:
            _end(process)
            _, printed = process.communicate()
            raise _failure(texts, f"took more than {_IMPORT_SECONDS:g} s", printed) from None
        finally:
            _end(process)
    try:
        document = json.loads(answer)
    except ValueError:
        how = _ending(process.returncode)
        raise _failure(texts, f"ended the process {how}", printed) from None
    if "message" in document:
        raise RequestError(document["message"], hint=document["hint"])
    kernels: list[dict[str, Any]] = document["kernels"]
    return kernels


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of the session, including those that the file started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _ending(status: int) -> str:
    if status >= 0:
        return f"with exit status {status}"
    try:
        return f"with {signal.Signals(-status).name}"
    except ValueError:
        return f"with signal {-status}"


def _failure(texts: Sequence[str], what: str, printed: bytes) -> RequestError:
    files = ", ".join(dict.fromkeys(text.rpartition(":")[0] for text in texts))
    tail = printed.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    output = "".join(f"\n    {line}" for line in tail)
    return RequestError(
        f"importing the kernel file {files} {what}{output}",
        hint="Run the file with python by itself; its import should take little time.",
    )


def _read(document: dict[str, Any]) -> KernelFacts:
    signature = None
    if document["signature"] is not None:
        parameters = [
            inspect.Parameter(
                name,
                kind=inspect._ParameterKind(kind),
                default=None if has_default else inspect.Parameter.empty,
            )
            for name, kind, has_default in document["signature"]
        ]
        signature = inspect.Signature(parameters)
    return KernelFacts(
        path=Path(document["path"]),
        function_name=document["function"],
        arrays=document["arrays"],
        configurations=document["configurations"],
        signature=signature,
    )


def _write(kernel: KernelFacts) -> dict[str, Any]:
    signature = None
    if kernel.signature is not None:
        signature = [
            (p.name, int(p.kind), p.default is not p.empty)
            for p in kernel.signature.parameters.values()
        ]
    return {
        "path": str(kernel.path),
        "function": kernel.function_name,
        "arrays": kernel.arrays,
        "configurations": {name: dict(values) for name, values in kernel.configurations.items()},
        "signature": signature,
    }


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    texts = request["kernels"]
    try:
        kernels = [
            load_kernel(
                text,
                configurations=request["configurations"],
                arrays=request["arrays"],
                prefix=request["prefix"],
            )
            for text in texts
        ]
    except GemmetryError as error:
        return {"message": error.message, "hint": error.hint}
    return {"kernels": [_write(kernel) for kernel in kernels]}


def main() -> None:
    """Reply on the standard output that the process was started with."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        json.dump(_answer(json.load(sys.stdin)), answers)
    sys.stderr.flush()
    # Threads and exit handlers of the files must not delay the reply.
    os._exit(0)


if __name__ == "__main__":
    main()
