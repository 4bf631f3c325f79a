"""The pytest plugin: a fixture that times kernels, files in pytest-benchmark's format, and a
comparison that fails on *slower* only.

::

    def test_matmul(kernel_benchmark):
        kernel_benchmark(torch.matmul, a, b)

    def test_mine(kernel_benchmark):
        contest = kernel_benchmark.compare({"mine": mine, "theirs": theirs}, inputs=make)
        contest.assert_not_slower("mine", than="theirs", by=0.02)

Nothing but pytest is imported until a test uses the fixture or an option is given.
"""

from __future__ import annotations

import platform
import re
import statistics
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gemmetry.judge.contest import Contest

THRESHOLD = 0.05
"""Default of ``--kernel-benchmark-threshold``. The runs that are compared were not interleaved:
medians of one dispatch differ by up to a few percent from minute to minute on one card."""

_BUDGET_S = 5.0


_OPTIONS: tuple[tuple[str, str, type, float | None, str], ...] = (
    ("json", "FILE", Path, None, "write times in the format of pytest-benchmark"),
    ("compare", "REF", Path, None,
     "a file of pytest --kernel-benchmark-json: fail tests that are slower now"),
    ("threshold", "SHARE", float, THRESHOLD,
     f"differences up to this count as none (default: {THRESHOLD})"),
    ("budget", "SECONDS", float, _BUDGET_S, f"seconds for each test (default: {_BUDGET_S})"),
)  # fmt: skip
"""Name, value, its type, default and help."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("gemmetry", "times of kernels (gemmetry)")
    for name, metavar, kind, default, text in _OPTIONS:
        option = f"--kernel-benchmark-{name}"
        group.addoption(option, metavar=metavar, type=kind, default=default, help=text)


class _Session:
    """The times of one run of pytest, and those that it is compared with."""

    def __init__(self, config: pytest.Config) -> None:
        self.entries: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.target: Path | None = config.getoption("--kernel-benchmark-json")
        self.threshold: float = config.getoption("--kernel-benchmark-threshold")
        self.budget_s: float = config.getoption("--kernel-benchmark-budget")
        reference: Path | None = config.getoption("--kernel-benchmark-compare")
        self.before: dict[str, list[list[float]]] = {}
        if reference is not None:
            from gemmetry.domain.errors import RequestError
            from gemmetry.judge.contest import read_times

            try:
                self.before = read_times(reference)
            except RequestError as error:
                raise pytest.UsageError(str(error)) from error


_SESSION = pytest.StashKey[_Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Read the file to compare with before any test runs.

    Raises:
        UsageError: the file cannot be read, or tests run in several processes.
    """
    session = config.stash[_SESSION] = _Session(config)
    if (session.target or session.before) and config.getoption("numprocesses", None):
        raise pytest.UsageError("kernels that are timed need the device alone: run without -n")


@pytest.fixture
def kernel_benchmark(request: pytest.FixtureRequest) -> KernelBenchmark:
    """Times kernels: see :class:`KernelBenchmark`."""
    return KernelBenchmark(request.node, request.config.stash[_SESSION])


class KernelBenchmark:
    """Fixture's object for a test."""

    def __init__(self, node: pytest.Item, session: _Session) -> None:
        self._node, self._session = node, session

    def __call__(
        self,
        function: Callable[..., object],
        *args: Any,
        cold: bool = True,
        device: object = None,
        **options: Any,
    ) -> object:
        """Time ``function(*args, **options)``. Returns its result.

        A GPU that `device` names and that is missing skips the test.
        """
        result: list[object] = []

        def call(*arguments: Any) -> object:
            found = function(*arguments, **options)
            result[:] = [found]
            return found

        contest = self.compare(
            {self._node.name: call}, inputs=args, cold=cold, device=device, graph=False
        )
        self._judge(self._record(contest))
        return result[0]

    def compare(self, functions: Mapping[str, Callable[..., object]], **options: Any) -> Contest:
        """Time functions against each other: :func:`gemmetry.compare` with its options. A GPU that
        ``device`` names and that is missing skips the test."""
        from gemmetry.judge.clocks import gpu_count
        from gemmetry.judge.contest import compare

        wanted = str(options.get("device") or "cpu")
        index = re.fullmatch(r"cuda(?::(\d+))?", wanted)
        if index is not None and int(index[1] or 0) >= (count := gpu_count()):
            pytest.skip(f"there is no {wanted}: torch sees {count} GPUs")
        contest = compare(functions, **{"budget": self._session.budget_s, **options})
        if len(functions) > 1:
            self._record(contest)
        self._session.lines += ["", self._node.nodeid, *str(contest).splitlines()]
        return contest

    def _record(self, contest: Contest) -> dict[str, list[list[float]]]:
        """Add an entry for each function. Returns their rounds by full name."""
        node, found = self._node, {}
        for name, rounds in contest.rounds.items():
            end = f"::{name}" if len(contest.rounds) > 1 else ""
            fullname, shown = f"{node.nodeid}{end}", f"{node.name}{end}"
            found[fullname] = [list(map(float, turn)) for turn in rounds]
            self._session.entries.append(_entry(node, shown, fullname, found[fullname], contest))
        return found

    def _judge(self, rounds: Mapping[str, list[list[float]]]) -> None:
        """Fail where a time is shown to be slower than in the file that was given."""
        from gemmetry.statistics.comparison import Difference, compare_rounds

        for name, after in rounds.items():
            before = self._session.before.get(name)
            if not before:
                continue
            # Turns of different runs are not pairs.
            compared = compare_rounds(
                dict(enumerate(before)),
                dict(enumerate(after, len(before))),
                relevant=self._session.threshold,
            )
            interval = compared.interval
            shown = "" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})"
            line = f"{compared.verdict}: {compared.ratio:.3f} times the earlier time{shown}"
            self._session.lines.append(line)
            if compared.verdict is Difference.SLOWER:
                pytest.fail(f"{name} is {line}", pytrace=False)


def _entry(
    node: pytest.Item, name: str, fullname: str, rounds: list[list[float]], contest: Contest
) -> dict[str, Any]:
    """One entry of ``benchmarks`` in pytest-benchmark's files (its version 5)."""
    call = getattr(node, "callspec", None)
    return {
        "group": None,
        "name": name,
        "fullname": fullname,
        "params": None if call is None else {key: repr(one) for key, one in call.params.items()},
        "param": None if call is None else call.id,
        "extra_info": {
            "device": contest.device,
            "method": contest.method,
            "marks": list(contest.marks),
            "rounds_ns": rounds,
        },
        "options": {"timer": contest.method, "warmup": True},
        "stats": _statistics([ns / 1e9 for turn in rounds for ns in turn], len(rounds)),
    }


def _statistics(seconds: list[float], rounds: int) -> dict[str, Any]:
    """The statistics that pytest-benchmark stores, in seconds."""
    ordered = sorted(seconds)
    quartiles = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else [ordered[0]] * 3
    mean, spread = statistics.fmean(ordered), statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    q1, middle, q3 = quartiles[0], statistics.median(ordered), quartiles[2]
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    beyond = sum(not low <= value <= high for value in ordered)
    far = sum(abs(value - mean) > spread for value in ordered)
    return {
        "min": ordered[0], "max": ordered[-1], "mean": mean, "stddev": spread,
        "median": middle, "iqr": q3 - q1, "q1": q1, "q3": q3,
        "iqr_outliers": beyond, "stddev_outliers": far, "outliers": f"{far};{beyond}",
        "ld15iqr": next(value for value in ordered if value >= low),
        "hd15iqr": next(value for value in reversed(ordered) if value <= high),
        "ops": 1 / mean, "total": sum(ordered), "rounds": len(ordered), "iterations": 1,
        "data": seconds,
    }  # fmt: skip


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the tables of all tests that timed something."""
    session = config.stash[_SESSION]
    if session.lines:
        terminalreporter.section("times of kernels")
        for line in session.lines:
            terminalreporter.line(line)
    if session.target is not None:
        terminalreporter.line(f"times of kernels: {session.target}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the file that ``--kernel-benchmark-json`` names."""
    here = session.config.stash[_SESSION]
    if here.target is None:
        return
    from gemmetry.results.emit import write_atomically
    from gemmetry.results.json_text import json_file

    document = {
        "machine_info": {
            "node": platform.node(), "processor": platform.processor(),
            "machine": platform.machine(), "system": platform.system(),
            "release": platform.release(), "python_version": platform.python_version(),
            "python_implementation": platform.python_implementation(), "cpu": {},
        },
        "commit_info": {},
        "benchmarks": here.entries,
        "datetime": datetime.now(UTC).isoformat(),
        "version": "5.1.0",
    }  # fmt: skip
    write_atomically(here.target, json_file(document))
