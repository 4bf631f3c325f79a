"""``gemmetry.compare`` and ``do_bench`` on simulated clocks, and on this host."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from itertools import cycle, pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import gemmetry
from gemmetry.domain.errors import LaunchError, RequestError
from gemmetry.domain.units import format_half_width
from gemmetry.judge import clocks, contest
from gemmetry.judge.clocks import HostClock, open_clock
from gemmetry.testing import UndecidedWarning


class SimulatedClock(HostClock):
    """A device whose speed drifts and jumps; a call lasts as long as its result says, in ns, and
    takes five microseconds of the budget: outcomes do not depend on this machine."""

    def __init__(
        self, seed: int, noise: float = 0.01, drift: float = 0.1, telemetry: object = None
    ) -> None:
        self.device, self.cache_bytes, self.flushes = "simulated", 1, 0
        self._telemetry = telemetry or {}
        self._random, self._noise, self._drift = random.Random(seed), noise, drift
        self._count, self.now_s = 0, 0.0

    def times(
        self, calls: Sequence[Callable[[], object]], before: Callable[[], None] | None = None
    ) -> list[float]:
        speed, found = 1 + self._drift * self._random.random(), []
        for call in calls:
            if before is not None:
                before()
            self._count, self.now_s = self._count + 1, self.now_s + 5e-6
            length = call()
            ns = float(length) if isinstance(length, (int, float)) else 1.0
            wave = 1 + self._drift * math.sin(self._count / 200) / 4
            found.append(ns * speed * wave * (1 + self._random.gauss(0, self._noise)))
        return found

    def flush(self) -> None:
        self.flushes += 1

    def observer(self) -> Any:
        """Of the simulated device, not of the host."""
        return Mock(stop=lambda: self._telemetry)


@pytest.fixture
def compared(monkeypatch) -> Callable[..., contest.Contest]:
    """Compares functions on a clock."""

    def run(
        clock: SimulatedClock, functions: object, budget: float = 0.15, seed: int = 1, **more: Any
    ) -> contest.Contest:
        monkeypatch.setattr(contest, "open_clock", lambda *_: clock)
        monkeypatch.setattr(contest, "time", SimpleNamespace(perf_counter=lambda: clock.now_s))
        monkeypatch.setattr(contest, "ROUND_S", 0.001)
        return gemmetry.compare(functions, seed=seed, budget=budget, **more)

    return run


@pytest.fixture
def simulated(compared) -> Callable[..., contest.Contest]:
    def run(seed: int, lengths: dict[str, float], **options: object) -> contest.Contest:
        functions = {name: lambda ns=ns: ns for name, ns in lengths.items()}
        return compared(SimulatedClock(seed), functions, seed=seed, **options)

    return run


def test_equal_functions_show_no_difference_and_one_percent_does(simulated) -> None:
    pairs = 40
    false = sum(
        simulated(seed, {"a": 1e5, "b": 1e5}, relevant=0.0).pairs[0].verdict in ("faster", "slower")
        for seed in range(pairs)
    )
    # P(more than 6 of 40 at 5 %) = 0.3 %; intervals also end sampling, which costs some of it.
    assert false <= 6
    found = [simulated(seed, {"a": 1e5, "b": 1.01e5}).pairs[0] for seed in range(pairs)]
    assert sum(one.verdict == "slower" for one in found) >= 0.95 * pairs
    covered = sum(one.ratio_low <= 1.01 <= one.ratio_high for one in found)
    assert covered >= 34


def test_a_verdict_is_read_from_the_interval_that_is_printed(simulated) -> None:
    found = simulated(3, {"a": 1e5, "b": 1.2e5, "c": 0.9e5})
    assert [(one.name, one.than) for one in found.pairs] == [("b", "a"), ("c", "a"), ("c", "b")]
    for one in found.pairs:
        low, high = one.interval
        assert low <= one.ratio <= high
        assert one.verdict == ("slower" if low > 1 else "faster")
    back = found.pair("a", "b")
    assert back.verdict == "faster" and back.ratio_low == 1 / found.pair("b", "a").ratio_high
    assert "1.2" in str(found) and max(map(len, str(found).splitlines())) <= 100
    assert [one["name"] for one in found.to_dict()["functions"]] == ["a", "b", "c"]
    assert json.dumps(found.to_dict())
    assert found.markdown().startswith("| function | time |")
    assert "<td>b</td>" in found._repr_html_()


@pytest.mark.parametrize(
    ("telemetry", "is_busy"),
    [({}, False), ({"run_delay_share": 0.04, "others_cpu_share": 0.09}, False),
     ({"run_delay_share": 0.4}, True), ({"others_cpu_share": 0.4}, True)],
)  # fmt: skip
def test_what_only_waiting_made_slower_is_undecided(compared, telemetry, is_busy) -> None:
    """In most calls of b, another program takes its processor; without it, b is the faster one."""
    lengths = cycle([0.9e5, 9e5, 9e5, 9e5])
    functions = {"a": lambda: 1e5, "b": lambda: next(lengths), "c": lambda: 3e5}
    found = compared(SimulatedClock(7, telemetry=telemetry), functions, seed=7, budget=0.3)
    verdicts = {one.name: one.verdict for one in found.pairs if one.than == "a"}
    assert verdicts == {"b": "undecided" if is_busy else "slower", "c": "slower"}
    assert any(mark.startswith("busy: ") for mark in found.marks) == is_busy
    assert all(one.ratio_low <= one.ratio <= one.ratio_high for one in found.pairs)


def test_what_ends_the_budget_is_an_interval_that_is_shown(simulated) -> None:
    found = simulated(3, {"a": 1e5, "b": 2e5}, until=1e-6)
    (mark,) = [mark for mark in found.marks if mark.startswith("the budget ended")]
    low, high = found.pairs[0].interval
    assert format_half_width((high - low) / 2 / found.pairs[0].ratio) in mark
    assert f"{format_half_width(5e-6)} wanted" in mark, "far from 1, more is allowed"


def test_assertions_fail_on_slower_and_warn_where_undecided(simulated, recwarn) -> None:
    found = simulated(5, {"theirs": 1e5, "mine": 1.1e5})
    with pytest.raises(AssertionError, match="mine"):
        found.assert_not_slower("mine", than="theirs", by=0.02)
    found.assert_not_slower("mine", than="theirs", by=0.2)
    found.assert_not_slower("theirs", than="mine")
    assert not recwarn.list
    with pytest.warns(UndecidedWarning):
        found.assert_not_slower("mine", than="theirs", by=found.pairs[0].ratio - 1)
    for name in ("ours", "mine"):
        with pytest.raises(RequestError):
            found.assert_not_slower(name, than="mine")


@pytest.mark.parametrize(
    ("size", "options", "sets", "flushes", "repeats"),
    [(5_000, {}, 6, False, False), (50, {}, 1, True, True),
     (5_000, {"cold": False}, 1, False, True)],
)  # fmt: skip
def test_inputs_rotate_where_they_exceed_the_cache_and_a_flush_runs_where_not(
    compared, size, options, sets, flushes, repeats
) -> None:
    clock, used = SimulatedClock(1), []
    clock.cache_bytes = 10_000
    functions = dict.fromkeys("ab", lambda array: used.append(array.ctypes.data) or 1e5)
    compared(clock, functions, inputs=lambda: np.empty(size, np.uint8), budget=0.05, **options)
    assert (len(set(used)), clock.flushes > 20) == (sets, flushes)
    assert flushes or clock.flushes == 0
    assert any(one == other for one, other in pairwise(used[50:])) == repeats


def test_no_function_follows_itself_and_orders_differ(compared) -> None:
    ran = []
    functions = {name: lambda name=name: ran.append(name) or 1e6 for name in "abc"}
    compared(SimulatedClock(1), functions, budget=0.1)
    tail = ran[60 + len(ran) % 3 :]
    turns = [tuple(tail[i : i + 3]) for i in range(0, len(tail), 3)]
    assert len(turns) > 20
    assert all(len({*turn}) == 3 for turn in turns)
    assert len(set(turns)) > 2


GIVEN = {"inputs": lambda: "x"}


@pytest.mark.parametrize(
    ("functions", "options"),
    [
        ({}, {}), ([len], {}), ({"a": 3}, {}), ({"a": len}, {"budget": float("nan")}),
        ({"a": len}, {"budget": "3 s"}), ({"a": len}, {"until": 0}),
        ({"a": len}, {**GIVEN, "device": "tpu"}), ({"a": len}, {**GIVEN, "device": "cuda:99"}),
        ({"a": len}, {**GIVEN, "verify": "matmul_nonsense"}),
        ({"a": len}, {**GIVEN, "verify": lambda x: 1 / 0}),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense(functions, options) -> None:
    with pytest.raises(RequestError):
        gemmetry.compare(functions, **{"budget": 0.1, **options})


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(LaunchError, match=r"mine.*ZeroDivisionError"):
        gemmetry.compare({"theirs": lambda: 1, "mine": lambda: 1 / 0})


def test_a_wrong_result_is_the_verdict_and_has_no_accuracy() -> None:
    array = np.random.default_rng(1).random((8, 8))
    functions = {"right": np.matmul, "off": lambda a, b: np.matmul(a, b) + 1}
    found = gemmetry.compare(functions, inputs=(array, array), budget=0.1, verify=np.matmul)
    row = next(line for line in str(found).splitlines() if line.startswith("off "))
    assert row.endswith("wrong") and "accumulated" not in str(found)
    assert "| wrong |" in found.markdown() and "<td>wrong</td>" in found._repr_html_()


def test_on_this_host_twice_the_work_is_slower() -> None:
    array = np.random.default_rng(1).random(200_000)
    functions = {"once": np.sort, "twice": lambda values: (np.sort(values), np.sort(values))[1]}
    found = gemmetry.compare(functions, inputs=(array,), budget=30, until=0.05, verify=np.sort)
    assert found.pairs[0].verdict == "slower" and found.pairs[0].ratio > 1.3
    assert all(one.is_right for one in found.checked)
    assert found.method == "wall_clock"


@pytest.fixture
def clock(monkeypatch) -> SimulatedClock:
    made = SimulatedClock(2, noise=0.001, drift=0.0)
    monkeypatch.setattr(clocks, "open_clock", lambda *_: made)
    return made


def test_figures_of_do_bench_are_milliseconds(clock) -> None:
    bench = clocks.do_bench
    assert bench(lambda: 2e6) == pytest.approx(2, rel=0.01)
    for mode in ("min", "max", "median"):
        assert bench(lambda: 2e6, return_mode=mode) == pytest.approx(2, rel=0.02)
    assert len(bench(lambda: 2e6, rep=100, return_mode="all")) == pytest.approx(50, abs=2)
    low, high = bench(lambda: 2e6, quantiles=[0.1, 0.9])
    assert low <= high
    assert isinstance(bench(lambda: 2e6, quantiles=[0.5]), float)
    assert clock.flushes > 100


def test_gradients_are_cleared_before_each_call_of_do_bench(clock) -> None:
    tensor, seen = Mock(grad=1), []

    def fn() -> float:
        seen.append(tensor.grad)
        tensor.grad = 1
        return 1e6

    clocks.do_bench(fn, rep=10, grad_to_none=[tensor])
    assert set(seen[1:]) == {None}


@pytest.mark.parametrize("options", [{"return_mode": "best"}, {"quantiles": [50]}])
def test_arguments_of_do_bench_that_make_no_sense(clock, options) -> None:
    with pytest.raises(RequestError):
        clocks.do_bench(lambda: 1.0, **options)


def test_a_function_without_tensors_on_a_gpu_is_timed_by_the_host() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(4, 4)
    assert open_clock(None, [lambda: a @ a], ()).device == "cpu"
    assert open_clock("cpu", [], ()).cache_bytes > 0
