"""A submission in its own confined process, as the parent sees it."""

from __future__ import annotations

import json
import math
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.errors import LaunchError, OutOfMemoryError, WrongResultError
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostBuffer, HostDevice
from gemmetry.judge.submissions import Submission

ARENA_BYTES = 2**32
"""Address space of the arena; only what is used takes memory."""

MOST_REPLY_BYTES = 2**20

START_S = 120.0
"""Time to import or compile a submission."""

_ALIGNED = 256

_POISON = 0x73
"""Fills what malloc hands out in the child (mallopt(3), M_PERTURB), so that a result that was never
written is not right by chance."""


class Died(LaunchError):
    """The submission's process ended, or did not answer in time."""


class Arena(HostDevice):
    """Host memory that the child maps too; a :class:`gemmetry.domain.contracts.Device`."""

    def __init__(self, size_bytes: int = ARENA_BYTES) -> None:
        super().__init__()
        self.descriptor = os.memfd_create("gemmetry-judge", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size_bytes)
        self._map = mmap.mmap(self.descriptor, size_bytes)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._start = self._bytes.ctypes.data
        self._free = [(0, size_bytes)]
        self._lock = threading.Lock()

    def room(self, size_bytes: int) -> HostBuffer:
        """Bytes of the arena: the first gap that is large enough after the one used last, so that
        addresses change."""
        size = max(_ALIGNED, math.ceil(size_bytes / _ALIGNED) * _ALIGNED)
        with self._lock:
            place = next((i for i, (_, length) in enumerate(self._free) if length >= size), None)
            if place is None:
                raise MemoryError
            start, length = self._free.pop(place)
            if length > size:
                # Last, so that the next buffers come from elsewhere before this gap is used again.
                self._free.append((start + size, length - size))
        found = self._bytes[start : start + size_bytes]
        weakref.finalize(found, self._release, start, size)
        return found

    def _release(self, start: int, size: int) -> None:
        with self._lock:
            gaps = sorted([*self._free, (start, size)])
            merged: list[tuple[int, int]] = []
            for begin, length in gaps:
                if merged and sum(merged[-1]) == begin:
                    merged[-1] = merged[-1][0], merged[-1][1] + length
                else:
                    merged.append((begin, length))
            self._free = merged

    def offset(self, buffer: HostBuffer) -> int:
        """Where a buffer begins in the arena.

        Raises:
            WrongResultError: it is not in the arena.
        """
        offset = int(buffer.ctypes.data) - self._start
        if not 0 <= offset <= self._bytes.size - buffer.nbytes:
            raise WrongResultError("a buffer outside of the arena was passed on")
        return offset


class Remote:
    """A running submission.

    Args:
        arena: the memory for its arguments and results.
        style: ``torch`` or ``numpy``: what its function takes.
        poisons: fill the memory that it allocates.
        limit_s: seconds for a batch of calls.
    """

    def __init__(
        self,
        submission: Submission,
        arena: Arena,
        *,
        style: str = "torch",
        initial: Sequence[Any] = (),
        packs: bool = False,
        seed: int = 0,
        threads: int = 1,
        poisons: bool = False,
        limit_s: float = 60.0,
        memory_bytes: int | None = None,
    ) -> None:
        """Start the process, and import the submission in it.

        Raises:
            LaunchError: the import fails. Died: the process ended or took too long.
        """
        self.arena, self.limit_s, self._lock = arena, limit_s, threading.Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="gemmetry-judge-")
        folder = Path(self._scratch.name)
        for name, text in submission.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._start(folder, poisons, memory_bytes)
        try:
            self.missing = list(self._read(START_S).get("missing", ()))
            self.ask(
                {
                    "do": "load", "style": style, "path": str(folder / submission.main),
                    "entry": submission.entry, "seed": seed, "threads": threads, "packs": packs,
                    "initial": [{"value": one} for one in initial],
                },
                limit_s=START_S,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path, poisons: bool, memory_bytes: int | None) -> None:
        requests, self._to_child = os.pipe()
        self._from_child, replies = os.pipe()
        passed = (requests, replies, self.arena.descriptor)
        setup = {"scratch": str(folder), "memory_bytes": memory_bytes, "descriptors": passed}
        kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "PYTHONPATH")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {
            "HOME": str(folder), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        if poisons:
            environment["MALLOC_PERTURB_"] = str(_POISON)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gemmetry.judge.child", json.dumps(setup)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=passed, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
        os.close(requests)
        os.close(replies)
        self._rest, self._is_closed = b"", False

    def ask(self, request: Mapping[str, Any], *, limit_s: float | None = None) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            LaunchError: the submission raised. WrongResultError: it returned something else than
                the task demands. Died: the process ended, or did not answer.
        """
        with self._lock:
            self._send(request)
            return self._checked(self._read(self.limit_s if limit_s is None else limit_s))

    def _send(self, request: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(request).encode() + b"\n"
            while line:
                line = line[os.write(self._to_child, line) :]
        except OSError as error:
            raise Died(f"the submission's process ended: {self._ending()}") from error

    def _read(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._from_child], [], [], deadline - time.monotonic())
            if not ready:
                self.close()
                raise Died(f"the submission did not answer within {limit_s:g} s")
            data = os.read(self._from_child, 65536)
            if not data:
                raise Died(f"the submission's process ended: {self._ending()}")
            self._rest += data
            if len(self._rest) > MOST_REPLY_BYTES:
                self.close()
                raise Died("the submission's process floods the judge with replies")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.close()
            raise Died("the submission's process sent something that is no reply")
        return found

    @staticmethod
    def _checked(found: dict[str, Any]) -> dict[str, Any]:
        if "error" in found:
            raise LaunchError(str(found["error"])[:500])
        if "wrong" in found:
            raise WrongResultError(str(found["wrong"])[:500])
        return found

    def _ending(self) -> str:
        others = self.members()  # The number of a process that is reaped may be another's.
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its channel"
        for pid in others:
            _signal(pid, signal.SIGKILL)
        if status < 0 or status > 128:
            number = -status if status < 0 else status - 128
            return f"signal {number} ({signal.strsignal(number) or 'unknown'})"
        return f"exit status {status}"

    def place(self, value: Any) -> dict[str, Any]:
        """A message's form of an argument: a buffer of the arena, or a plain value."""
        if not isinstance(value, np.ndarray):
            return {"value": value}
        return {
            "dtype": torch_name(value.dtype), "shape": list(value.shape),
            "offset": self.arena.offset(value),
        }  # fmt: skip

    def prepare(self, calls: Sequence[tuple[Sequence[Any], Sequence[HostBuffer]]]) -> None:
        """Announce calls, each with its arguments and the buffers of its results."""
        self.ask(
            {
                "do": "prepare",
                "calls": [
                    {"inputs": list(map(self.place, inputs)),
                     "outputs": list(map(self.place, outputs))}
                    for inputs, outputs in calls
                ],
            }
        )  # fmt: skip

    def go(self) -> float:
        """Run the announced calls. Returns their time in ns by this process's clock."""
        with self._lock:
            before = time.perf_counter_ns()
            self._send({"do": "go"})
            found = self._read(self.limit_s)
            took = time.perf_counter_ns() - before
        self._checked(found)
        return float(took)

    def members(self) -> list[int]:
        """Processes of the submission: all in its process namespace, or in its session where
        namespaces are not granted."""
        found = []
        own = _namespace("self")
        session = self._process.pid
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parts = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            space = _namespace(entry.name)
            if int(parts[3]) == session or (space and space != own and self._owns(space, session)):
                found.append(int(entry.name))
        return [pid for pid in found if pid != session]

    def _owns(self, space: str, session: int) -> bool:
        try:
            tasks = Path(f"/proc/{session}/task/{session}/children").read_text().split()
        except OSError:
            return False
        return any(_namespace(pid) == space for pid in tasks)

    def stop(self) -> list[int]:
        """Stop all processes of the submission; returns them for :meth:`go_on`."""
        members = self.members()
        for pid in members:
            _signal(pid, signal.SIGSTOP)
        return members

    def go_on(self, members: Sequence[int]) -> None:
        """Let stopped processes run again."""
        for pid in members:
            _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process and all that it started; further calls do nothing."""
        if self._is_closed:
            return
        if self._process.returncode is None:
            for pid in [*self.members(), self._process.pid]:
                _signal(pid, signal.SIGKILL)
            self._process.wait()
        self._is_closed = True
        os.close(self._to_child)
        os.close(self._from_child)
        self._scratch.cleanup()


def _namespace(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # it has ended


def torch_name(dtype: np.dtype[Any]) -> str:
    """Torch's name of a numpy dtype: ``float8_e4m3fn``, ``bfloat16``, ``float32``."""
    return str(dtype)


class RemoteExecutable:
    """A submission as an :class:`gemmetry.domain.contracts.Executable`, for the checks of
    :mod:`gemmetry.verification`, at any shape."""

    writes_output = True
    facts = BuildFacts()
    device: Device

    def __init__(self, remote: Remote) -> None:
        self.device = remote.arena
        self._remote = remote

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """One launch; see the protocol.

        Raises:
            LaunchError: the submission raised, or its process ended.
            OutOfMemoryError: it had not enough memory.
        """
        try:
            self._remote.prepare([(inputs, [output])])
            self._remote.go()
        except Died:
            raise
        except LaunchError as error:
            if "MemoryError" in str(error) or "out of memory" in str(error):
                raise OutOfMemoryError(str(error)) from error
            raise
        return output

    def close(self) -> None:
        """Nothing: the process serves other shapes too."""
