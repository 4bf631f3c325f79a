"""``gemmetry.compare`` and ``do_bench`` on simulated clocks, and on this host."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable, Sequence
from itertools import cycle, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmetry
from gemmetry.domain.errors import LaunchError, RequestError
from gemmetry.domain.units import format_half_width
from gemmetry.judge import clocks, contest
from gemmetry.judge.clocks import HostClock, open_clock
from gemmetry.testing import UndecidedWarning


class SimulatedClock(HostClock):
    """A device whose speed drifts and jumps; a call lasts as long as its result says, in ns."""

    def __init__(
        self, seed: int, noise: float = 0.01, drift: float = 0.1, telemetry: object = None
    ) -> None:
        self.device, self.cache_bytes, self.flushes = "simulated", 1, 0
        self._telemetry = telemetry or {}
        self._random, self._noise, self._drift = random.Random(seed), noise, drift
        self._speed, self._count = 1.0, 0

    def times(
        self, calls: Sequence[Callable[[], object]], before: Callable[[], None] | None = None
    ) -> list[float]:
        self._speed = 1 + self._drift * self._random.random()
        found = []
        for call in calls:
            if before is not None:
                before()
            self._count += 1
            length = call()
            ns = float(length) if isinstance(length, (int, float)) else 1.0
            wave = 1 + self._drift * math.sin(self._count / 200) / 4
            found.append(ns * self._speed * wave * (1 + self._random.gauss(0, self._noise)))
        return found

    def flush(self) -> None:
        self.flushes += 1

    def observer(self) -> Any:
        """Of the simulated device, not of the host."""
        return SimpleNamespace(
            start=lambda: None, sample=lambda: None, stop=lambda: self._telemetry
        )


@pytest.fixture
def simulated(monkeypatch) -> Callable[..., contest.Contest]:
    def run(seed: int, lengths: dict[str, float], **options: object) -> contest.Contest:
        clock = SimulatedClock(seed)
        monkeypatch.setattr(contest, "open_clock", lambda *_: clock)
        monkeypatch.setattr(contest, "ROUND_S", 0.001)
        functions = {name: lambda ns=ns: ns for name, ns in lengths.items()}
        return gemmetry.compare(functions, seed=seed, budget=0.15, **options)

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
    text = str(found)
    assert "1.2" in text and max(map(len, text.splitlines())) <= 100
    document = json.loads(json.dumps(found.to_dict()))
    assert [one["name"] for one in document["functions"]] == ["a", "b", "c"]
    assert found.markdown().startswith("| function | time |")
    assert "<td>b</td>" in found._repr_html_()


@pytest.mark.parametrize(
    ("telemetry", "is_busy"),
    [({}, False), ({"run_delay_share": 0.04, "others_cpu_share": 0.09}, False),
     ({"run_delay_share": 0.4}, True), ({"others_cpu_share": 0.4}, True)],
)  # fmt: skip
def test_what_only_waiting_made_slower_is_undecided(monkeypatch, telemetry, is_busy) -> None:
    """In most calls of b, another program takes its processor; without it, b is the faster one."""
    clock = SimulatedClock(7, telemetry=telemetry)
    monkeypatch.setattr(contest, "open_clock", lambda *_: clock)
    monkeypatch.setattr(contest, "ROUND_S", 0.001)
    lengths = cycle([0.9e5, 9e5, 9e5, 9e5])
    functions = {"a": lambda: 1e5, "b": lambda: next(lengths), "c": lambda: 3e5}
    found = gemmetry.compare(functions, seed=7, budget=0.3)
    verdicts = {one.name: one.verdict for one in found.pairs if one.than == "a"}
    assert verdicts == {"b": "undecided" if is_busy else "slower", "c": "slower"}
    assert any(mark.startswith("busy: ") for mark in found.marks) == is_busy
    for one in found.pairs:
        assert one.ratio_low <= one.ratio <= one.ratio_high


def test_what_ends_the_budget_is_an_interval_that_is_shown(simulated) -> None:
    found = simulated(3, {"a": 1e5, "b": 2e5}, until=1e-6)
    (mark,) = [mark for mark in found.marks if mark.startswith("the budget ended")]
    low, high = found.pairs[0].interval
    assert format_half_width((high - low) / 2 / found.pairs[0].ratio) in mark
    assert f"{format_half_width(5e-6)} wanted" in mark, "far from 1, more is allowed"


def test_assertions_fail_on_slower_and_warn_where_undecided(simulated) -> None:
    found = simulated(5, {"theirs": 1e5, "mine": 1.1e5})
    with pytest.raises(AssertionError, match="mine"):
        found.assert_not_slower("mine", than="theirs", by=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.assert_not_slower("mine", than="theirs", by=0.2)
        found.assert_not_slower("theirs", than="mine")
    with pytest.warns(UndecidedWarning):
        found.assert_not_slower("mine", than="theirs", by=found.pairs[0].ratio - 1)
    for name in ("ours", "mine"):
        with pytest.raises(RequestError):
            found.assert_not_slower(name, than="mine")


def test_inputs_rotate_where_they_exceed_the_cache_and_a_flush_runs_where_not(monkeypatch) -> None:
    def run(cache_bytes: int, size: int, **options: object) -> tuple[int, int, int]:
        clock, used = SimulatedClock(1), []
        clock.cache_bytes = cache_bytes
        monkeypatch.setattr(contest, "open_clock", lambda *_: clock)
        functions = {
            name: lambda array: used.append(array.ctypes.data) or 1e5 for name in ("a", "b")
        }
        gemmetry.compare(functions, inputs=lambda: np.empty(size, np.uint8), budget=0.05, **options)
        repeats = sum(one == other for one, other in pairwise(used[50:]))
        return len(set(used)), clock.flushes, repeats

    sets, flushes, repeats = run(10_000, 5_000)
    assert sets == 6 and flushes == 0 and repeats == 0
    sets, flushes, _ = run(10_000, 50)
    assert sets == 1 and flushes > 20
    assert run(10_000, 5_000, cold=False)[1] == 0


def test_no_function_follows_itself_and_orders_differ(monkeypatch) -> None:
    clock, ran = SimulatedClock(1), []
    monkeypatch.setattr(contest, "open_clock", lambda *_: clock)
    functions = {name: lambda name=name: ran.append(name) or 1e6 for name in "abc"}
    gemmetry.compare(functions, budget=0.1, seed=1)
    tail = ran[60:]
    tail = tail[len(tail) % 3 :]
    assert len(tail) > 60
    assert len({tuple(tail[i : i + 3]) for i in range(0, len(tail), 3)}) > 2


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (({},), {}),
        (([len],), {}),
        (({"a": 3},), {}),
        (({"a": len},), {"budget": float("nan")}),
        (({"a": len},), {"budget": "3 s"}),
        (({"a": len},), {"until": 0}),
        (({"a": len},), {"inputs": lambda: "x", "device": "tpu"}),
        (({"a": len},), {"inputs": lambda: "x", "device": "cuda:99"}),
        (({"a": len},), {"inputs": lambda: "x", "verify": "matmul_nonsense"}),
        (({"a": len},), {"inputs": lambda: "x", "verify": lambda x: 1 / 0}),
    ],
)
def test_requests_that_make_no_sense(arguments, options) -> None:
    with pytest.raises(RequestError):
        gemmetry.compare(*arguments, **{"budget": 0.1, **options})


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(LaunchError, match=r"mine.*ZeroDivisionError"):
        gemmetry.compare({"theirs": lambda: 1, "mine": lambda: 1 / 0})


def test_a_wrong_result_is_the_verdict_and_has_no_accuracy() -> None:
    array = np.random.default_rng(1).random((8, 8))
    functions = {"right": np.matmul, "off": lambda a, b: np.matmul(a, b) + 1}
    found = gemmetry.compare(functions, inputs=(array, array), budget=0.1, verify=np.matmul)
    row = next(line for line in str(found).splitlines() if line.startswith("off "))
    assert row.endswith("wrong")
    assert "| wrong |" in found.markdown()
    assert "<td>wrong</td>" in found._repr_html_()
    assert "accumulated" not in str(found)


def test_on_this_host_twice_the_work_is_slower() -> None:
    array = np.random.default_rng(1).random(200_000)

    def twice(values: np.ndarray) -> np.ndarray:
        np.sort(values)
        return np.sort(values)

    found = gemmetry.compare(
        {"once": np.sort, "twice": twice}, inputs=(array,), budget=30, until=0.05, verify=np.sort
    )
    assert found.pairs[0].verdict == "slower" and found.pairs[0].ratio > 1.3
    assert all(one.is_right for one in found.checked)
    assert found.method == "wall_clock"


class TestDoBench:
    @pytest.fixture(autouse=True)
    def _simulated(self, monkeypatch) -> None:
        self.clock = SimulatedClock(2, noise=0.001, drift=0.0)
        monkeypatch.setattr(clocks, "open_clock", lambda *_: self.clock)

    def test_figures_are_milliseconds(self) -> None:
        bench = clocks.do_bench
        assert bench(lambda: 2e6) == pytest.approx(2, rel=0.01)
        for mode in ("min", "max", "median"):
            assert bench(lambda: 2e6, return_mode=mode) == pytest.approx(2, rel=0.02)
        assert len(bench(lambda: 2e6, rep=100, return_mode="all")) == pytest.approx(50, abs=2)
        low, high = bench(lambda: 2e6, quantiles=[0.1, 0.9])
        assert low <= high
        assert isinstance(bench(lambda: 2e6, quantiles=[0.5]), float)
        assert self.clock.flushes > 100

    def test_gradients_are_cleared_before_each_call(self) -> None:
        class Tensor:
            grad: object = 1

        tensor = Tensor()

        def fn() -> float:
            seen.append(tensor.grad)
            tensor.grad = 1
            return 1e6

        seen: list[object] = []
        clocks.do_bench(fn, rep=10, grad_to_none=[tensor])
        assert seen[1:] == [None] * len(seen[1:])

    @pytest.mark.parametrize("options", [{"return_mode": "best"}, {"quantiles": [50]}])
    def test_arguments_that_make_no_sense(self, options) -> None:
        with pytest.raises(RequestError):
            clocks.do_bench(lambda: 1e6, **options)


def test_a_function_without_tensors_on_a_gpu_is_timed_by_the_host() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(4, 4)
    assert open_clock(None, [lambda: a @ a], ()).device == "cpu"
    assert open_clock("cpu", [], ()).cache_bytes > 0
