"""Recordings made up event by event, read by the reader of Kineto traces."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import cases

from gemmetry.formats.kineto import read_kineto
from gemmetry.traces.collectives.summary import Collective, Group
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace


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
            what, values, given = cases.arguments(line)
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
            what, values, given = cases.arguments(line)
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


DATA = Path(__file__).parents[1] / "data"
HOSTILE = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://x")'


@pytest.fixture(name="report_of", scope="session")
def report_of_fixture():
    """Makes the report of traces that are given by their paths."""
    from gemmetry.documents.tracelens_workbooks import TraceLensSheets
    from gemmetry.traces.reading import read_all
    from gemmetry.traces.report import build_report

    def make(*paths, with_lanes=True, **options):
        errors = {}
        traces = read_all([DATA / path for path in paths], errors, use_cache=False)
        return build_report(
            traces, errors, sheets=TraceLensSheets(**options), with_lanes=with_lanes
        )

    return make


@pytest.fixture(name="job_report", scope="session")
def job_report_fixture(report_of):
    """The report of four ranks of a job."""
    return report_of("collectives/h200x4")


def _events_named(number, text, *, with_gpu):
    """An operator, another in it, a launch and kernels with `text` in all their names."""
    start, short = 100 * number, text[:300]
    place = {"ph": "X", "pid": text, "tid": text, "ts": start, "dur": 50}
    texts = dict.fromkeys(("Input type", "Concrete Inputs", "Input Strides"), (text,))
    args = {"External id": number + 1, "Input Dims": [[text], [8, 8]], **texts}
    yield {**place, "cat": "cpu_op", "name": text, "args": args}
    args = {**args, "Input Dims": [[8, 8]] * 2}
    inner = {**place, "ts": start + 5, "dur": 20}
    yield {**inner, "cat": "cpu_op", "name": f"{short}::gemm", "args": args}
    call = {"correlation": number + 1}
    yield {**place, "cat": "cuda_runtime", "name": text, "ts": start + 10, "args": call}
    kind = text if number % 2 else "allreduce"
    run = {**call, "device": 0, "stream": number % 5, "dtype": text, "Collective name": kind,
           "Process Group Name": text, "In msg nelems": 8, "Group size": 2}  # fmt: skip
    for name in (text, f"{short}_gemm", f"ncclDevKernel_AllReduce{short}") * with_gpu:
        yield {**place, "cat": "kernel", "name": name, "ts": start + 40, "args": run}


@pytest.fixture(name="report_named")
def report_named_fixture(report_of, tmp_path):
    """Makes the report of two ranks, and of a file that is no trace. Everything that can have a
    name has each of `texts` for one."""

    def make(texts, *, with_gpu=True, file="rank", broken="{"):
        joined = "".join(texts)[:9000]
        events = [one for number, text in enumerate(texts)
                  for one in _events_named(number, text, with_gpu=with_gpu)]  # fmt: skip
        # An event that cannot be used: the page shows its name too.
        events.append({"ph": "X", "cat": "kernel", "name": joined, "ts": "x"})
        head = {"host_name": texts[0], "deviceProperties": [{"id": 0, "name": joined}],
                "trace_id": texts[1], "traceEvents": events}  # fmt: skip
        paths = [tmp_path / f"{file}{part}.json" for part in (0, 1, "")]
        for rank, path in enumerate(paths[:2]):
            here = {"distributedInfo": {"rank": rank, "world_size": 2}}
            path.write_text(json.dumps({**here, **head}))
        paths[2].write_text(broken)
        return report_of(*paths)

    return make


@pytest.fixture(name="hostile_report")
def hostile_report_fixture(report_named):
    """The report of a trace whose names are scripts, formulas, control characters and very long."""
    texts = (HOSTILE, FORMULA, "\x1b[31mred\x00", "x" * 200_000, "-1+1|cmd", "\ud800")
    return report_named(texts, file=f"{FORMULA.replace('/', '')}<b>")


@pytest.fixture(name="kernels")
def kernels_fixture():
    """Makes the all-reduces of one rank of two, which begin `shift` ns later than another's."""
    from gemmetry.traces.collectives.summary import Collective, Group

    def make(shift, durations=(2000, 2000)):
        group = Group("0", (0, 1), 2)
        return tuple(
            Collective(
                row=i, op="all_reduce", dtype="Half", elements=1000, in_elements=1000,
                out_elements=1000, group=group, algorithm="tree", protocol=None, source="kernel",
                name="nccl", stream=1, device=0, start_ns=10**18 + i * 10**6 + shift,
                duration_ns=duration,
            )
            for i, duration in enumerate(durations)
        )  # fmt: skip

    return make


@pytest.fixture(name="trace")
def trace_fixture():
    """Makes a rank of a job of two, with its communication kernels."""
    from gemmetry.traces.jobs import RankTrace

    def make(rank, ones, folder="job"):
        return RankTrace(
            file=Path(f"{folder}/rank{rank}.json"), rank=rank, rank_source="trace", world_size=2,
            job=None, host=None, base_ns=10**18, span=(0, 0), collectives=ones, partial=False,
            problems=(),
        )  # fmt: skip

    return make


@pytest.fixture(name="found")
def found_fixture(kernels, trace):
    """Makes a job of two ranks, the second of which begins `shift` ns later."""
    from gemmetry.traces.collectives.matching import analyse_jobs

    return lambda shift=500: analyse_jobs([trace(0, kernels(0)), trace(1, kernels(shift))])
