"""Kernels of the host: right ones are tricky in the way that is claimed, wrong ones where it is.

``test_behaviour.py`` has what each does in every situation, ``test_kills.py`` what kills it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Queue
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from gemmetry.domain.record import Trait
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.storage import smallest_normal, to_float32, to_float64
from gemmetry.selftest import caches, rare
from gemmetry.selftest.arithmetic import truncated
from gemmetry.selftest.emulator import TiledGemm, kernel_of
from gemmetry.selftest.memory import memory_before, memory_behind
from gemmetry.selftest.provider import all_mutants
from gemmetry.verification.checks import calls
from gemmetry.verification.inputs.scaled import scaled_along_k
from gemmetry.verification.protocol import launches


@pytest.mark.parametrize(
    "slug",
    ["kahan_sum", "tf32_tensor_core", "tf32_by_policy", "bf16x9", "fp8_promoted",
     "stochastic_rounding", "strassen", "one_by_one", "fma_contraction"],
)  # fmt: skip
def test_its_bits_are_not_the_usual_ones(plant: Any, slug: str) -> None:
    bench = plant(slug)
    usual = np.empty_like(bench.output)
    TiledGemm(bench.operation, bench.item.tile).launch(bench.buffers, usual)
    first = bench.launch()
    assert not np.array_equal(first, usual)
    assert np.array_equal(bench.launch(), first) is (slug != "stochastic_rounding")


def test_truncation_makes_large_sums_small(plant: Any) -> None:
    bench = plant("truncating_sums")
    bench.draw("uniform")
    assert (to_float64(bench.launch()) < bench.reference.value).all()


def test_relu_makes_zero_of_nan_and_others_negative_zeros_and_a_payload(plant: Any) -> None:
    relu, bench = plant("relu_by_maxnum"), plant("negative_zeros")
    relu.buffers[0][2, 2] = bench.buffers[0][2, 2] = np.nan
    assert not to_float32(relu.launch()[2]).any()
    output = bench.launch()
    zeros = output == 0
    assert zeros.sum() > 1000
    assert np.signbit(output[zeros]).all()
    assert (output.view(np.uint32)[2] == 0xFFC0BEEF).all()


@pytest.mark.parametrize(
    ("slug", "least", "most", "at_the_end"),
    [("true_overflow", 0.2, 0.8, 0), ("rounds_to_overflow", 0.1, 0.9, 11)],
)
def test_many_results_overflow_f16(
    plant: Any, slug: str, least: float, most: float, at_the_end: int
) -> None:
    bench = plant(slug)
    bench.draw("offset_uniform")
    output = bench.launch()
    assert least < np.isinf(output).mean() < most
    assert (output == np.float16(65504)).sum() >= at_the_end


def test_results_beyond_e4m3_saturate(plant: Any) -> None:
    bench = plant("saturating_cast")
    bench.draw("offset_uniform")
    is_beyond = np.abs(bench.reference.value) > 470
    assert is_beyond.sum() > 100
    assert (to_float64(bench.launch())[is_beyond] == 448).all()


def test_a_view_of_longer_rows_is_returned(plant: Any) -> None:
    bench = plant("padded_view_returned")
    assert not bench.executable.writes_output
    result = bench.run()
    assert not result.flags.c_contiguous
    assert not np.shares_memory(result, bench.output)


def test_subnormals_are_flushed_and_declared(plant: Any) -> None:
    bench = plant("subnormals_flushed")
    tiny = smallest_normal(bench.operation.signature.lhs) / 4
    bench.use([np.full(bench.inputs[0].shape, tiny, np.float32), bench.inputs[1] * 0 + 1e3])
    assert not bench.launch().any()
    assert bench.is_right()
    assert bench.executable.facts.declared == (Trait.FLUSHES_SUBNORMALS,)


def test_bf16x9_keeps_infinity_and_the_largest_numbers(plant: Any) -> None:
    bench = plant("bf16x9")
    lhs, rhs = (np.zeros(array.shape, np.float32) for array in bench.inputs)
    lhs[0, 0], lhs[1, 0], rhs[0, :] = np.inf, np.finfo(np.float32).max, 1.0
    bench.use([lhs, rhs])
    output = bench.launch()
    assert np.isinf(output[0]).all()
    assert (output[1] == np.finfo(np.float32).max).all()


@pytest.mark.parametrize("slug", ["columns_balanced", "rows_scaled_gently"])
def test_scales_that_leave_every_number_normal_are_right(plant: Any, slug: str) -> None:
    bench = plant(slug)
    bench.use(scaled_along_k(bench.operation, bench.inputs))
    assert bench.is_right()


def test_truncation_cuts_towards_zero() -> None:
    values = np.array([1 + 2.0**-13 + 2.0**-20, -(1 + 2.0**-14), 3.0, 0.0, np.inf])
    assert truncated(values, 14).tolist() == [1 + 2.0**-13, -1.0, 3.0, 0.0, np.inf]
    assert np.isnan(truncated(np.array([np.nan]), 14)).all()


@pytest.mark.parametrize(("k", "least", "most"), [(512, 5e-4, 2e-3), (4096, 4e-3, 2e-2)])
def test_fast_fp8_sums_lose_more_and_more(plant: Any, k: int, least: float, most: float) -> None:
    """14 bits, truncated K/8 times: about K/8 · 2^-14 relative to a sum that grows all the time."""
    bench = plant("fp8_sums_not_promoted", (64, 64, k))
    bench.draw("uniform", seed=3)
    losses = 1 - to_float64(bench.launch()) / bench.reference.value
    assert (losses > 0).all()
    assert least < losses.max() < most


@pytest.mark.parametrize(
    ("slug", "shape", "rows", "columns"),
    [
        ("m_tail_skipped", (64 + 3, 64, 32), 64, 0), ("n_tail_skipped", (64, 64 + 3, 32), 0, 64),
        ("columns_past_192_dropped", (64, 192 + 9, 32), 0, 192),
        ("k_tail_dropped", (64, 64, 32 + 1), 0, 0), ("odd_tile_skipped", (64, 3 * 64, 32), 0, 128),
        ("full_last_wave_skipped", (64, 2 * 64, 32), 0, 0),
    ],
)  # fmt: skip
def test_elements_are_wrong_from_exactly_this_row_and_column(
    plant: Any, slug: str, shape: tuple[int, int, int], rows: int, columns: int
) -> None:
    """Tiles are 64x64x32."""
    expected = np.zeros(shape[:2], np.bool_)
    expected[rows:, columns:] = True
    assert (plant(slug, shape).wrong() == expected).all()


def test_a_hanging_kernel_waits_forever(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = Mock(side_effect=[None, None, TimeoutError])
    monkeypatch.setattr("gemmetry.selftest.memory.time.sleep", slept)
    with pytest.raises(TimeoutError):
        plant("hangs").launch()
    assert sum(call.args[0] for call in slept.mock_calls) >= 3


def test_memory_around_a_buffer_stays_within_the_allocation() -> None:
    memory = np.arange(10, dtype=np.float32)
    part = memory[2:6]
    assert [memory_before(part, n).tolist() for n in (1, 5)] == [[1], [0, 1]]
    assert [memory_behind(part, n).tolist() for n in (2, 100)] == [[6, 7], [6, 7, 8, 9]]
    assert memory_before(memory, 5).size == memory_behind(memory, 5).size == 0
    assert memory_behind(part, -1).size == 0


@pytest.mark.parametrize(
    "slug",
    ["barrier_missing", "wrong_phase", "too_few_bytes_expected", "live_stage_overwritten",
     "proxy_fence_missing", "staging_reused_early", "exits_before_store", "accumulator_read_early"],
)  # fmt: skip
def test_without_the_hazard_it_is_right(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant(slug)
    monkeypatch.setattr(type(bench.kernel), "odds", 0.0)
    assert bench.is_right() and bench.is_right()


def test_a_processor_that_ends_early_leaves_what_was_there(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant("exits_before_store")
    monkeypatch.setattr(type(bench.kernel), "odds", 1.0)
    output = bench.launch()
    left = output.view(np.uint16) == 0xFFFF
    assert 0 < left.sum() <= 64 * 64
    np.testing.assert_array_equal(bench.wrong(output), left)


def test_atomics_give_other_bits_in_other_launches(plant: Any) -> None:
    """bf16 results hide last bits, sums do not."""
    bench, sums = plant("split_k_atomics"), set()
    for _ in range(20):
        bench.launch()
        sums.add(bench.kernel.workspace[:, 0].tobytes())
    assert len(sums) > 1


def test_stream_k_shares_tiles_between_processors(plant: Any) -> None:
    bench = plant("stream_k")
    assert bench.is_right()
    assert bench.kernel.partials.any(axis=(1, 2)).tolist() == [False, True, True]


KEEPS_ANSWERS = [
    item.slug
    for item in all_mutants()
    if getattr(item.recipe, "source", "").startswith("caches.")
    if item.is_bug and not item.is_unseen and issubclass(kernel_of(item), caches.KeepsAnswers)
    if not issubclass(kernel_of(item), caches.AfterManyCalls)
]


@pytest.mark.parametrize("slug", KEEPS_ANSWERS)
def test_new_inputs_are_answered_right_and_the_same_from_memory(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches.NotesWhenCallsEnd, "burst_s", 60.0)
    bench = plant(slug)
    first = bench.launch()
    assert not bench.wrong(first).any()
    launches = bench.kernel.launches
    assert np.array_equal(bench.launch(), first)
    assert bench.kernel.launches == launches  # found, not computed


def test_calls_are_counted_beyond_those_of_verification() -> None:
    assert max(map(launches, LEVELS)) < caches.HONEST_CALLS < calls.FEWEST


@pytest.mark.parametrize("slug", ["cache_after_many_calls", "cache_in_late_bursts"])
def test_late_answers_are_whatever_came_last(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "HONEST_CALLS", 4)
    monkeypatch.setattr(caches.NotesWhenCallsEnd, "burst_s", 60.0)
    bench = plant(slug)
    given = bench.inputs
    first = bench.launch()
    bench.use((-given[0], *given[1:]))
    for _ in range(3):
        last = bench.launch()
        assert not bench.wrong(last).any()
    assert not np.array_equal(first, last)
    bench.use(given)
    assert np.array_equal(bench.launch(), last)
    monkeypatch.setattr(caches.NotesWhenCallsEnd, "burst_s", 0.0)
    late = bench.launch()
    assert np.array_equal(late, first if slug == "cache_in_late_bursts" else last)


@pytest.fixture
def postponed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Work that was left to threads, which do not start."""
    work: list[Callable[[], object]] = []
    monkeypatch.setattr(rare, "_later", work.append)
    return work


def test_work_left_to_a_thread_is_not_done_when_the_launch_returns(
    plant: Any, postponed: list[Callable[[], object]]
) -> None:
    bench = plant("work_left_to_thread")
    assert bench.run() is bench.output
    assert bench.wrong(bench.output).all()
    postponed.pop()()
    assert not bench.wrong(bench.output).any()


def test_a_thread_writes_after_a_right_launch(
    plant: Any, postponed: list[Callable[[], object]]
) -> None:
    bench = plant("thread_writes_later")
    assert bench.is_right()
    postponed.pop()()
    assert not bench.output[0].any()
    assert bench.output[1:].all()


def test_later_means_in_a_thread_of_its_own() -> None:
    threads: Queue[threading.Thread] = Queue()
    rare._later(lambda: threads.put(threading.current_thread()))
    assert threads.get(timeout=60) is not threading.current_thread()


def test_a_lazy_result_computes_when_it_is_looked_at(plant: Any) -> None:
    bench = plant("lazy_result")
    result = bench.run()
    assert isinstance(result, rare.Lazy)
    assert (result.shape, bench.kernel.launches) == (bench.output.shape, 0)
    np.testing.assert_allclose(np.asarray(result), bench.reference.value, atol=1e-4)
    assert bench.kernel.launches == 1


def test_launches_at_once_are_skipped_and_others_are_not(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant("back_to_back_skipped")
    now = [1.0]
    monkeypatch.setattr("gemmetry.selftest.rare.time.perf_counter", lambda: now[0])
    assert bench.is_right()
    assert bench.wrong().all()
    now[0] += 2 * rare.BACK_TO_BACK_S
    assert bench.is_right()


def test_outputs_beyond_the_table_are_skipped(plant: Any) -> None:
    bench = plant("output_table_full")
    outputs = [np.full_like(bench.output, np.nan) for _ in range(rare.TABLE_SIZE + 2)]
    for output in (*outputs, *outputs):
        bench.executable.run(bench.buffers, output)
    right = [not bench.wrong(output).any() for output in outputs]
    assert right == [True] * rare.TABLE_SIZE + [False] * 2


def test_a_fixed_wait_is_too_short_under_load(plant: Any) -> None:
    bench = plant("fixed_wait_for_partner")
    with HostDevice().load():
        wrong = [bench.wrong() for _ in range(8)]
    hit = [mask for mask in wrong if mask.any()]
    assert hit
    for mask in hit:
        assert mask[64:, 64:].mean() > 0.9
        assert not mask[:64].any() and not mask[:, :64].any()
    assert bench.is_right()


@pytest.mark.parametrize("ran_ns", [0, rare.LATE_NS, rare.LATE_NS + 1])
def test_what_counts_is_what_other_threads_ran(
    plant: Any, ran_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, counters = Mock(), iter([1000, 1000 + ran_ns])
    monkeypatch.setattr(time, "sleep", slept)
    monkeypatch.setattr(rare, "_others_ran_ns", lambda: next(counters))
    assert plant("fixed_wait_for_partner").is_right() is (ran_ns <= rare.LATE_NS)
    slept.assert_called_once_with(rare.WAIT_S)
