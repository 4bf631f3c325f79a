from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.selftest import caches as host_caches
from gemmetry.selftest.emulator import kernel_of
from gemmetry.selftest.provider import all_mutants
from gemmetry.verification.checks import calls
from gemmetry.verification.protocol import launches

MUTANTS = [
    item
    for item in all_mutants()
    if getattr(item.recipe, "source", "").startswith("caches.") and not item.is_unseen
]
KEEPS_ANSWERS = [
    item.slug
    for item in MUTANTS
    if item.is_bug and issubclass(kernel_of(item), host_caches.KeepsAnswers)
    if not issubclass(kernel_of(item), host_caches.AfterManyCalls)
]


@pytest.mark.parametrize("slug", KEEPS_ANSWERS)
def test_new_inputs_are_answered_right_and_the_same_from_memory(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_caches.NotesWhenCallsEnd, "burst_s", 60.0)
    bench = plant(slug)
    first = bench.launch()
    assert not bench.wrong(first).any()
    launches = bench.kernel.launches
    assert np.array_equal(bench.launch(), first)
    assert bench.kernel.launches == launches  # found, not computed


@pytest.mark.parametrize("slug", ["cache_by_sums", "cache_by_line_sums", "cache_by_magnitudes"])
def test_invariants_keep_the_answer(plant: Any, slug: str) -> None:
    bench = plant(slug)
    a = bench.buffer("lhs")
    a[...] = np.arange(a.size).reshape(a.shape) % 7 + 1
    first = bench.launch()
    changed = np.negative(a) if slug == "cache_by_magnitudes" else a[:, ::-1].copy()
    a[...] = changed
    assert np.array_equal(bench.launch(), first)


@pytest.mark.parametrize("slug", ["cache_by_both_sums", "last_answer_by_both_sums"])
def test_an_exchange_that_keeps_all_sums_keeps_the_answer(plant: Any, slug: str) -> None:
    bench = plant(slug)
    a = bench.buffer("lhs")
    at = np.ix_((3, 7), (2, 9))
    a[at] = [[1, 2], [2, 1]]
    first = bench.launch()
    a[at] = [[2, 1], [1, 2]]
    assert np.array_equal(bench.launch(), first)
    a[0, 0] += 1
    assert not np.array_equal(bench.launch(), first)


def test_the_last_answer_is_all_that_is_kept(plant: Any) -> None:
    bench = plant("last_answer_by_a")
    a = bench.buffer("lhs")
    for value in (1, 2, 1):
        a[0, 0] = value
        bench.launch()
    assert len(bench.kernel.answers) == 1
    assert bench.kernel.launches == 3


def test_calls_are_counted_beyond_those_of_verification() -> None:
    assert max(map(launches, LEVELS)) < host_caches.HONEST_CALLS < calls.FEWEST


@pytest.mark.parametrize(
    ("slug", "count"),
    [("one_result_buffer", 1), ("two_result_buffers", 2), ("four_result_buffers", 4)],
)
def test_results_come_back_in_a_few_buffers(plant: Any, slug: str, count: int) -> None:
    bench = plant(slug)
    results = [bench.executable.run(bench.buffers, bench.output) for _ in range(2 * count + 1)]
    assert len({id(result) for result in results}) == count
    assert bench.is_right()


@pytest.mark.parametrize("slug", ["cache_after_many_calls", "cache_in_late_bursts"])
def test_late_answers_are_whatever_came_last(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_caches, "HONEST_CALLS", 4)
    monkeypatch.setattr(host_caches.NotesWhenCallsEnd, "burst_s", 60.0)
    bench = plant(slug)
    first = bench.launch()
    bench.use(tuple(-array for array in bench.inputs[:1]) + bench.inputs[1:])
    for _ in range(3):
        last = bench.launch()
        assert not bench.wrong(last).any()
    assert not np.array_equal(first, last)
    bench.use(tuple(-array for array in bench.inputs[:1]) + bench.inputs[1:])
    assert np.array_equal(bench.launch(), last)
    monkeypatch.setattr(host_caches.NotesWhenCallsEnd, "burst_s", 0.0)
    late = bench.launch()
    assert np.array_equal(late, first if slug == "cache_in_late_bursts" else last)
