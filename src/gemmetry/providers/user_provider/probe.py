"""Inspects kernel files in a separate process: importing one may crash or never end.

``python -m gemmetry.providers.user_provider.probe`` reads a request and prints the reply, one JSON
document each; output of the files themselves goes to standard error.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.providers.user_provider.kernel import KernelFacts, load_kernel, name_configurations

_IMPORT_SECONDS = 120.0
"""Long enough for a first ``import torch`` from a slow disk."""

_POLL_S = 0.005

_TAIL_LINES, _TAIL_BYTES = 12, 1 << 16


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
    with TemporaryFile() as asked, TemporaryFile() as answers, TemporaryFile() as output:
        asked.write(request)
        asked.seek(0)
        process = subprocess.Popen(
            command, stdin=asked, stdout=answers, stderr=output, start_new_session=True
        )
        try:
            in_time = _await_end(process, _IMPORT_SECONDS)
        finally:
            # The leader has not been waited for, so that its number is no other group's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer, printed = _tail(answers, None), _tail(output, _TAIL_BYTES)
    if not in_time:
        raise _failure(texts, f"took more than {_IMPORT_SECONDS:g} s", printed)
    try:
        document = json.loads(answer)
    except ValueError:
        how = _ending(process.returncode)
        raise _failure(texts, f"ended the process {how}", printed) from None
    if "message" in document:
        raise RequestError(document["message"], hint=document["hint"])
    kernels: list[dict[str, Any]] = document["kernels"]
    return kernels


def _await_end(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until `child` ends, and leave its number occupied. Returns False after `seconds`."""
    ends = time.monotonic() + seconds
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > ends:
            return False
        time.sleep(_POLL_S)
    return True


def _tail(file: IO[bytes], most: int | None) -> bytes:
    """The last bytes of `file`, `most` of them; all if that is None."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0 if most is None else max(0, size - most))
    return file.read()


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
