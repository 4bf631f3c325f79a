"""Recordings made up event by event, read by the reader of Kineto traces."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.formats.kineto import read_kineto
from gemmetry.traces.collectives.summary import Collective, Group
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace

_SPEC = importlib.util.spec_from_file_location("cases", Path(__file__).parents[1] / "cases.py")
_cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_cases)


class Recording:
    """A Kineto trace in the making; all times in ns."""

    def __init__(self, **head: Any) -> None:
        self.head = head
        self.process = ""
        """Put before the number of each process."""
        self.events: list[str] = []

    def kernel(self, name: str, start: int, duration: int, **args: Any) -> None:
        """Args: correlation, device, stream, grid, block, and others by their names there."""
        category = args.pop("category", "kernel")
        recorded = {"device": 0, "stream": 7, "grid": [8, 4, 1], "block": [128, 1, 1], **args}
        self._add(category, name, start, duration, 0, recorded)

    def memcpy(self, start: int, duration: int, **args: Any) -> None:
        name = "Memcpy HtoD (Pageable -> Device)"
        self.kernel(name, start, duration, category="gpu_memcpy", **args)

    def memset(self, start: int, duration: int, **args: Any) -> None:
        self.kernel("Memset (Device)", start, duration, category="gpu_memset", **args)

    def call(
        self, correlation: int, start: int, duration: int = 5, *, thread: int = 1, **args: Any
    ) -> None:
        """Args: name, and others by their names there."""
        name = args.pop("name", "cudaLaunchKernel")
        recorded = {"correlation": correlation, **args}
        self._add("cuda_runtime", name, start, duration, thread, recorded)

    def operator(
        self, name: str, start: int, duration: int, *, thread: int = 1, **args: Any
    ) -> None:
        """Args: shapes, dtypes, strides, values, and others by their names there."""
        recorded = dict(args)
        for key, there in (
            ("shapes", "Input Dims"), ("dtypes", "Input type"),
            ("strides", "Input Strides"), ("values", "Concrete Inputs"),
            ("external", "External id"), ("sequence", "Sequence number"),
            ("forward_thread", "Fwd thread id"),
        ):  # fmt: skip
            if key in recorded:
                recorded[there] = recorded.pop(key)
        self._add("cpu_op", name, start, duration, thread, recorded)

    def mark(
        self, name: str, start: int, duration: int, *, gpu: bool = False, stream: int = 7
    ) -> None:
        """Of thread 1, or of a `stream` of GPU 0."""
        category = "gpu_user_annotation" if gpu else "user_annotation"
        process, thread = (0, stream) if gpu else (1, 1)
        self._add(category, name, start, duration, thread, {}, process)

    def launch(self, name: str, number: int, *, at: int, lasts: int, **args: Any) -> None:
        """A kernel that the call `number` launched 10 ns before it began."""
        self.call(number, at - 10)
        self.kernel(name, at, lasts, correlation=number, **args)

    def trace(self, name: str = "made_up.json") -> Trace:
        head = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], **self.head}
        text = json.dumps(head)[:-1] + ', "traceEvents": [' + ",".join(self.events) + "]}"
        rows = read_kineto(io.BytesIO(text.encode()))
        assert rows is not None
        return Trace(Path(name), rows)

    def _add(
        self, category: str, name: str, start: int, duration: int, thread: int, args: Any,
        process: int = 1,
    ) -> None:  # fmt: skip
        pid = f"{self.process}{process}" if self.process else process
        recorded = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread}
        rest = json.dumps(recorded)
        times = f', "ts": {_microseconds(start)}, "dur": {_microseconds(duration)}'
        self.events.append(f'{rest[:-1]}{times}, "args": {json.dumps(args)}}}')


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of this user are in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))


@functools.cache
def _read(path: Path) -> Trace:
    return Trace(path, read_trace(path, use_cache=False))


@pytest.fixture(scope="session")
def read_real() -> Callable[[Path], Trace]:
    """Reads a real trace once for all tests, which change nothing in it; all that there are take
    some 100 MB."""
    return _read


@pytest.fixture(scope="session")
def recording() -> type[Recording]:
    """The class: tests make as many recordings as they need. (For hypothesis, of the session.)"""
    return Recording


def made_collective(**recorded: Any) -> Collective:
    """A communication kernel; properties that are not given are those of an all-reduce of 1000
    floats on two ranks."""
    usual: dict[str, Any] = {
        "row": 0, "op": "all_reduce", "dtype": "Float", "elements": 1000, "in_elements": 1000,
        "out_elements": 1000, "group": Group("0", (0, 1), 2), "algorithm": None, "protocol": None,
        "source": "kernel", "name": "nccl", "stream": 1, "device": 0, "start_ns": 0,
        "duration_ns": 100,
    }  # fmt: skip
    return Collective(**{**usual, **recorded})


def made_rank(
    rank: int | None, collectives: Sequence[Collective] = (), **recorded: Any
) -> RankTrace:
    """A trace of one rank, in the folder ``job``."""
    numbered = tuple(dataclasses.replace(one, row=i) for i, one in enumerate(collectives))
    span = (
        min((one.start_ns for one in numbered), default=0),
        max((one.end_ns for one in numbered), default=0),
    )
    usual: dict[str, Any] = {
        "file": Path(f"job/rank{rank}.json"), "rank": rank, "rank_source": "trace",
        "world_size": None, "job": None, "host": None, "base_ns": 0, "span": span,
        "collectives": numbered, "partial": False, "problems": (),
    }  # fmt: skip
    return RankTrace(**{**usual, **recorded})


@pytest.fixture(scope="session")
def collective() -> Callable[..., Collective]:
    return made_collective


@pytest.fixture(scope="session")
def rank() -> Callable[..., RankTrace]:
    return made_rank


@pytest.fixture(scope="session")
def made_traces() -> Callable[[list[str]], list[Trace]]:
    """Traces of lines that are calls of :class:`Recording`."""

    def make(lines: list[str]) -> list[Trace]:
        made = [("made_up.json", Recording())]
        for line in lines:
            what, values, given = _cases.arguments(line)
            if what == "trace":
                made = made if made[0][1].events else []
                made.append((values[0], Recording(**given)))
            elif what == "process":
                made[-1][1].process = values[0]
            else:
                getattr(made[-1][1], what)(*values, **given)
        return [one.trace(name) for name, one in made]

    return make


@pytest.fixture(scope="session")
def made_ranks() -> Callable[[list[str]], list[RankTrace]]:
    """Ranks of lines that are a rank, and each of its collectives."""

    def make(lines: list[str]) -> list[RankTrace]:
        made: list[tuple[Any, dict[str, Any], list[Collective]]] = []
        for line in lines:
            what, values, given = _cases.arguments(line)
            if what == "rank":
                given |= {"file": Path(given["file"])} if "file" in given else {}
                made.append((values[0], given, []))
                continue
            if given.get("group"):
                name, members, size = given["group"]
                given["group"] = Group(name, tuple(members), size)
            made[-1][2].append(made_collective(**given))
        return [made_rank(number, ones, **given) for number, given, ones in made]

    return make


@pytest.fixture(scope="session")
def ranks() -> Callable[..., tuple[np.ndarray, np.ndarray, list[RankTrace]]]:
    """Starts and ends (a row for each collective), and traces of ranks that arrive at random and
    end within 3 us. Those of a rank begin with the collective `begins`, by a clock that is
    `shifts` ns ahead; `of` gives what else is recorded of a collective, `more` of a rank."""

    def make(seed, count, world, *, shifts, begins, of, more=lambda r: {}):
        rng = np.random.default_rng(seed)
        group = Group("0", tuple(range(world)), world)
        starts = np.cumsum(rng.integers(2_000_000, 9_000_000, count))[:, None] + rng.integers(
            0, 1_500_000, (count, world)
        )
        ends = starts.max(axis=1)[:, None] + 200_000 + rng.integers(0, 3000, (count, world))
        traces = []
        for r in range(world):
            ones = [
                made_collective(group=group, start_ns=int(starts[i, r] + shifts[r]),
                                duration_ns=int(ends[i, r] - starts[i, r]), **of(i, r))
                for i in range(begins[r], count)
            ]  # fmt: skip
            traces.append(made_rank(r, ones, **more(r)))
        return starts, ends, traces

    return make
