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


@pytest.mark.parametrize(
    ("slug", "role", "index", "value"),
    [
        ("cache_by_a", "rhs", (0, 0), 9.0),
        ("cache_by_b", "lhs", (0, 0), 9.0),
        ("cache_by_samples", "lhs", (0, 1), 9.0),
        ("cache_by_first_rows", "lhs", (20, 0), 9.0),
        ("cache_by_edges", "lhs", (20, 9), 9.0),
        ("cache_by_whole_lines", "rhs", (-1, -1), 9.0),
        ("last_answer_by_a", "rhs", (0, 0), 9.0),
        ("cache_by_all_addresses", "rhs", (0, 0), 9.0),
    ],
)
def test_what_is_not_looked_at_does_not_count(
    plant: Any, slug: str, role: str, index: tuple[int, int], value: float
) -> None:
    bench = plant(slug)
    first = bench.launch()
    bench.buffer(role)[index] = value
    assert np.array_equal(bench.launch(), first)


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


def test_an_answer_by_all_content_is_right_for_any_change(plant: Any) -> None:
    bench = plant("cache_by_all_content")
    assert bench.is_right()
    inputs = [np.array(array) for array in bench.inputs]
    inputs[0][3, 5] *= -1
    for buffer, array in zip(bench.buffers, inputs, strict=True):
        buffer[...] = array
    bench.inputs, bench._reference = tuple(inputs), None
    assert bench.is_right()


@pytest.mark.parametrize("slug", ["packs_once", "packs_by_checksum", "packs_by_content"])
def test_packed_operands(plant: Any, slug: str) -> None:
    bench = plant(slug)
    first = bench.launch()
    assert not bench.wrong(first).any()
    b = bench.buffer("rhs")
    b[...] = 1 if slug == "packs_once" else np.roll(b, 1, axis=0)
    changed = not np.array_equal(bench.launch(), first)
    assert changed is (slug == "packs_by_content")


@pytest.mark.parametrize(
    "slug", ["computed_output_skipped", "computed_tiles_skipped", "computed_output_added"]
)
def test_only_outputs_that_look_computed_are_used(plant: Any, slug: str) -> None:
    bench = plant(slug)
    for value in (np.nan, 0.0, 3.0):
        bench.output[...] = value
        bench.executable.run(bench.buffers, bench.output)
        assert not bench.wrong(np.array(bench.output)).any()
    bench.output[...] = np.arange(bench.output.size).reshape(bench.output.shape)
    bench.executable.run(bench.buffers, bench.output)
    assert bench.wrong(np.array(bench.output)).mean() > 0.9


def test_its_own_result_is_left_alone(plant: Any) -> None:
    bench = plant("own_result_skipped")
    assert bench.is_right()
    assert bench.is_right()  # over another content of the output
    launches = bench.kernel.launches
    bench.executable.run(bench.buffers, bench.output)
    assert bench.kernel.launches == launches


@pytest.mark.parametrize(
    ("slug", "count"),
    [("one_result_buffer", 1), ("two_result_buffers", 2), ("four_result_buffers", 4)],
)
def test_results_come_back_in_a_few_buffers(plant: Any, slug: str, count: int) -> None:
    bench = plant(slug)
    results = [bench.executable.run(bench.buffers, bench.output) for _ in range(2 * count + 1)]
    assert len({id(result) for result in results}) == count
    assert bench.is_right()


@pytest.mark.parametrize("slug", [item.slug for item in MUTANTS if not item.is_bug])
def test_right_ones_are_right_call_after_call(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert all(bench.is_right() for _ in range(3))
    assert plant(slug, (40, 30, 20)).is_right()


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
