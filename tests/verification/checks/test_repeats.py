from __future__ import annotations

import threading

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.checks import calls as repeats
from gemmetry.verification.inputs import exact as exact_inputs

NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_all_repeats_of_a_right_kernel_pass(context_of):
    context = context_of(NAME)
    for check in (
        repeats.check_second_launch,
        repeats.check_repeat,
        repeats.check_every_call,
        repeats.check_many_repeats,
        repeats.check_unordered_work,
    ):
        assert check(context).outcome is CheckOutcome.PASSED
    # The exact run that the calls are compared with is one launch more.
    assert context.executable.launches == 2 + (1 + repeats.CALLS) + repeats.REPEATS + 1


def test_rare_nondeterminism_is_found_by_many_repeats(context_of):
    def flip_late(inputs, output, launch):
        if launch == 12:
            output[0, 0] = np.nextafter(output[0, 0], np.float32(np.inf))

    context = context_of(NAME, meddle=flip_late)
    assert repeats.check_repeat(context).outcome is CheckOutcome.PASSED
    result = repeats.check_many_repeats(context)
    assert result.outcome is CheckOutcome.WARNED
    assert "1 of 48 elements" in result.detail


@pytest.mark.parametrize("period", [1, 2, 6])
def test_a_result_that_changes_is_guessed_to_be_a_race(context_of, period):
    def spoil(inputs, output, launch):
        if launch % period == 0:
            output[2] += launch if period > 1 else 1

    context = context_of(NAME, meddle=spoil)
    detail = repeats.check_every_call(context).detail
    assert ("race or kept state" in detail) is (period > 1), detail
    assert "row 2" in detail or "rows" in detail


@pytest.mark.parametrize("reason", ["declared", "short memory", "spoiled inputs"])
def test_no_race_is_guessed_where_launches_need_not_agree(context_of, monkeypatch, reason):
    def spoil(inputs, output, launch):
        output[2] += launch
        inputs[0][0, 0] += reason == "spoiled inputs"

    declared = (Trait.NONDETERMINISTIC,) if reason == "declared" else ()
    context = context_of(NAME, meddle=spoil, facts=BuildFacts(declared=declared))
    assert context.first.output.any()
    if reason == "short memory":
        monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert context.differs_between_launches is False


@pytest.mark.parametrize("damage", ["input", "zone"])
def test_damage_done_late_is_seen(context_of, damage):
    def meddle(inputs, output, launch):
        if launch == 15 and damage == "input":
            inputs[0][0, 0] += 1
        elif launch == 15:
            output.base[-1] = 0

    result = repeats.check_every_call(context_of(NAME, meddle=meddle))
    assert result.is_failure
    words = "the launches changed lhs" if damage == "input" else "outside the buffer of result"
    assert words in result.detail


def test_calls_without_exact_inputs_are_judged_by_the_bound(context_of):
    name = "matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16"

    def wrong_once(inputs, output, launch):
        if launch == 4:
            output[0, 0] = 1e4

    assert repeats.check_every_call(context_of(name)).outcome is CheckOutcome.PASSED
    assert repeats.check_every_call(context_of(name, meddle=wrong_once)).is_failure


@pytest.mark.parametrize("declared", [(), (Trait.NONDETERMINISTIC,)])
def test_orders_that_change_pass_on_integers(context_of, declared):
    rng = np.random.default_rng(1)

    def kernel(operation, tensors):
        a, b = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
        order = rng.permutation(a.shape[1])
        parts = [a[:, part] @ b[part] for part in np.array_split(order, 4)]
        return to_float64(np.add.reduce(parts, dtype=np.float32))

    context = context_of(
        "matmul_32x32x256_f32t_f32t_f32t", kernel=kernel, facts=BuildFacts(declared=declared)
    )
    assert repeats.check_every_call(context).outcome is CheckOutcome.PASSED
    wanted = CheckOutcome.PASSED if declared else CheckOutcome.WARNED
    assert repeats.check_repeat(context).outcome is wanted
    assert repeats.check_many_repeats(context).outcome is wanted


def test_a_result_that_the_next_launch_overwrites_is_reported(context_of):
    kept = {}

    def same_memory(inputs, output, launch):
        held = kept.setdefault("result", output)
        held[...] = output
        return held

    result = repeats.check_repeat(context_of(NAME, meddle=same_memory, writes_output=False))
    assert result.outcome is CheckOutcome.WARNED
    assert "the same memory" in result.detail
    for writes_output in (False, True):
        fresh = context_of(NAME, writes_output=writes_output)
        assert repeats.check_repeat(fresh).outcome is CheckOutcome.PASSED


def test_order_needs_a_device_that_has_one(context_of, plain_device):
    context = context_of(NAME, device=plain_device)
    assert repeats.check_unordered_work(context).outcome is CheckOutcome.NOT_APPLICABLE


def test_slow_launches_are_fewer():
    assert repeats.calls(0.0) == repeats.calls(0.1) == repeats.CALLS
    assert repeats.calls(0.5) == 6
    assert repeats.calls(100.0) == repeats.FEWEST_CALLS


def test_repeats_find_their_inputs_again_where_memory_is_short(context_of, monkeypatch):
    """Other inputs had to be put in their place meanwhile."""
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert context.first.output.any()
    assert context.exact("integers", exact_inputs.integers).is_right
    assert not context._main_is_as_given
    assert repeats.check_many_repeats(context).outcome is CheckOutcome.PASSED
    assert context._main_is_as_given


def test_another_thread_is_no_reason_for_another_result(context_of, plain_device):
    threads = []
    context = context_of(NAME, meddle=lambda i, o, n: threads.append(threading.get_ident()))
    assert repeats.check_other_thread(context).outcome is CheckOutcome.PASSED
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [True, False, False, False, False]
    plain = repeats.check_other_thread(context_of(NAME, device=plain_device))
    assert plain.outcome is CheckOutcome.NOT_APPLICABLE


def test_a_result_that_is_wrong_on_every_thread_is_no_matter_of_threads(context_of):
    result = repeats.check_other_thread(context_of(NAME, meddle=lambda i, o, n: o.fill(n)))
    assert result.is_failure
    assert "thread" not in result.detail


def test_a_refused_thread_does_not_apply(context_of):
    here = threading.get_ident()

    def refuse(inputs, output, launch):
        if threading.get_ident() != here:
            raise LaunchError("launches come from the first thread")

    result = repeats.check_other_thread(context_of(NAME, meddle=refuse))
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "launches come from the first thread" in result.detail
