"""A submission in its own confined process, as the parent sees it."""

from __future__ import annotations

import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.errors import LaunchError, OutOfMemoryError, WrongResultError
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.judge.memory import Arena
from gemmetry.judge.tasks import Submission

Calls = Sequence[tuple[Sequence[Any], Sequence[HostBuffer]]]
"""Each call's arguments, and the buffers of its results."""

MOST_REPLY_BYTES = 2**20

_CODE = re.compile(
    r"^[0-9a-f]+-[0-9a-f]+ r-x\S* .* (/\S+)\n(?:[A-Z]\w+:.*\n)*?Rss: +(\d+) kB", re.M
)
"""A mapping of executable code in /proc/PID/smaps, and how much of it is in memory (proc(5))."""

START_S = 300.0
"""Time to import or compile a submission: one file of CUDA C++ with torch's headers took a minute
on an H100's host."""

_POISON = 0x73
"""Fills what malloc hands out in the child (mallopt(3), M_PERTURB), so that a result that was never
written is not right by chance."""


class Died(LaunchError):
    """The submission's process ended, or did not answer in time."""


class NotShared(LaunchError):
    """The submission's process cannot open the memory; none of the submission's code has run."""


class Took(NamedTuple):
    """Times of a batch in ns."""

    ns: float
    """Duration by this process's clock."""
    own_ns: float
    """Duration by the clock or GPU events of the submission's process, which is not trusted."""


class Remote:
    """A running submission.

    Args:
        arena: the memory for its arguments and results.
        poisons: fill the memory that it allocates.
        limit_s: seconds for a batch of calls.
        without: layers of the sandbox that are left out.
    """

    def __init__(
        self,
        submission: Submission,
        arena: Arena,
        *,
        initial: Sequence[Any] = (),
        packs: bool = False,
        seed: int = 0,
        threads: int = 1,
        poisons: bool = False,
        limit_s: float = 60.0,
        memory_bytes: int | None = None,
        without: Sequence[str] = (),
    ) -> None:
        """Start the process, and import the submission in it.

        Raises:
            LaunchError: the import fails. Died: the process ended or took too long.
        """
        self.arena, self.limit_s, self._lock = arena, limit_s, threading.Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="gemmetry-judge-")
        self.folder = folder = Path(self._scratch.name)
        """Folder in which the submission may write."""
        self.reply: dict[str, Any] = {}
        """Reply of the process to the last launch."""
        for name, text in submission.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._start(folder, poisons, {"memory_bytes": memory_bytes, "without": without})
        try:
            self.missing = list(self._read(START_S).get("missing", ()))
            try:
                self.ask({"do": "open", "threads": threads}, limit_s=START_S)
            except LaunchError as error:
                raise NotShared(f"{arena.device}: {error}") from error
            self.code_before = self.code()
            self.ask(
                {
                    "do": "load", "path": str(folder / submission.main),
                    "entry": submission.entry, "seed": seed, "packs": packs,
                    "initial": [{"value": one} for one in initial],
                },
                limit_s=START_S,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path, poisons: bool, limits: Mapping[str, Any]) -> None:
        requests, self._to_child = os.pipe()
        self._from_child, replies = os.pipe()
        passed = (requests, replies, self.arena.descriptor)
        setup = {
            "scratch": str(folder), "descriptors": passed, **limits, **self.arena.setup(),
        }  # fmt: skip
        kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
                "PYTHONPATH")  # fmt: skip
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)  # it starts in another folder
        environment |= {
            "PYTHONPATH": os.pathsep.join(str(Path(one).resolve()) for one in paths if one),
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
        found = None
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
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
        # Numpy calls a format as torch does: float8_e4m3fn, bfloat16, float32.
        dtype, shape = str(value.dtype), list(value.shape)
        return {"dtype": dtype, "shape": shape, "offset": self.arena.offset(value)}

    def prepare(self, calls: Calls) -> None:
        """Announce calls, each with its arguments and the buffers of its results."""
        placed = [
            {"inputs": list(map(self.place, inputs)), "outputs": list(map(self.place, outputs))}
            for inputs, outputs in calls
        ]
        self.ask({"do": "prepare", "calls": placed})

    def run(self, calls: Calls, **request: Any) -> None:
        """Announce calls, hand over what was written to their buffers, run them, and read what
        they wrote."""
        self.prepare(calls)
        buffers = [one for inputs, outputs in calls for one in (*inputs, *outputs)]
        self.arena.push(buffers)
        self.go(**request)
        if self.arena.transport == "upload":
            self.ask({"do": "return"})
        self.arena.pull(buffers)

    def go(
        self, looks_at: Callable[[], Sequence[HostBuffer]] = tuple, **request: Any
    ) -> tuple[Took, list[HostBuffer]]:
        """Run the announced calls.

        Args:
            looks_at: chooses buffers after the reply. The clock stops when they are copied:
                the copies lack work that is not done by then.

        Returns:
            The time, and the copies.
        """
        if self.arena.transport == "upload":
            self.ask({"do": "upload"})
        with self._lock:
            before = time.perf_counter_ns()
            self._send({"do": "go", **request})
            # Loading torch's profiler is no work of the submission.
            limit_s = self.limit_s + START_S * ("counts" in request)
            self.reply = found = self._read(limit_s)
            frozen = self.arena.freeze(looks_at())
            took = time.perf_counter_ns() - before
        self._checked(found)
        own = found.get("own_ns", 0.0)
        is_time = isinstance(own, (int, float)) and math.isfinite(own)
        return Took(float(took), float(own) if is_time else 0.0), frozen()

    def members(self) -> list[int]:
        """Processes of the submission: all in its process namespace, or in its session where
        namespaces are not granted; the first of them is its own."""
        session = self._process.pid
        inside = {_namespace(pid) for pid in _children(session)} - {"", _namespace("self")}
        found, is_first_inside = [], False
        for pid in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            is_inside = bool(inside) and _namespace(pid) in inside
            is_first_inside |= is_inside
            with suppress(OSError):  # It has ended.
                if is_inside or os.getsid(int(pid)) == session:
                    found.append(int(pid))
        # With a namespace, the process that was started only waits for the one inside.
        return [pid for pid in found if pid != session or not is_first_inside]

    def code(self) -> dict[str, int]:
        """File -> bytes of its machine code in memory, for the libraries of the submission's
        processes: code gets there when it runs."""
        found: dict[str, int] = {}
        for pid in self.members():
            try:
                text = Path(f"/proc/{pid}/smaps").read_text(errors="replace")
            except OSError:
                continue
            for name, size in _CODE.findall(text):
                found[name] = found.get(name, 0) + 1024 * int(size)
        return found

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


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _namespace(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):  # it has ended
        os.kill(pid, number)


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
            self._remote.run([(inputs, [output])])
        except Died:
            raise
        except LaunchError as error:
            if "MemoryError" in str(error) or "out of memory" in str(error):
                raise OutOfMemoryError(str(error)) from error
            raise
        return output

    def close(self) -> None:
        """Nothing: the process serves other shapes too."""
