"""Launches again: many, in other threads, under stress; results that change, and rare bugs."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from tests.verification.conftest import FakeExecutable, assert_fails, operands

from gemmetry.domain.errors import LaunchError, UnsupportedError
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.storage import to_float64
from gemmetry.verification import launching
from gemmetry.verification.checks import CheckOutcome, calls
from gemmetry.verification.companions import Companions
from gemmetry.verification.inputs import exact as exact_inputs

LARGE = "matmul_32x32x32_f32t_f32n_f32t"
TILE = (16, 16, 8)


@pytest.fixture(autouse=True)
def without_deadlines(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(calls, "LONGEST_S", {False: 600.0, True: 600.0})


@pytest.fixture
def check(context_of):
    """check(name, kernel or meddle, ...) -> result; what is built is in check.built."""

    def run(name=LARGE, build=None, seed=42, **how):
        def make(operation):
            run.built.append(FakeExecutable(operation, **how))
            return run.built[-1]

        run.built = []
        context = context_of(name, companions=Companions(build or make, TILE))
        context.seed = seed
        return calls.check_many_calls(context)

    return run


@pytest.mark.parametrize("name", [
    LARGE, "batch_matmul_2x32x32x32_bf16n_bf16t_bf16n_bias_relu",
    "matmul_32x32x32_e4m3t_e4m3n_bf16t_scalerow", "matmul_32x32x32_s8t_s8n_s32t",
])  # fmt: skip
def test_right_kernels_pass_a_few_hundred_launches_whose_number_is_drawn(check, name):
    counts = set()
    for seed in range(4 if name == LARGE else 1):
        result = check(name, seed=seed)
        assert result.outcome is CheckOutcome.PASSED, result.detail
        (executable,) = check.built
        assert calls.FEWEST <= executable.launches < calls.MOST
        counts.add(executable.launches)
    assert name != LARGE or len(counts) > 1


def test_fewer_slow_launches_are_tried_and_that_is_reported(check, monkeypatch):
    monkeypatch.setattr(calls, "LONGEST_S", {False: 0.0, True: 0.0})
    result = check()
    assert result.outcome is CheckOutcome.INCOMPLETE
    assert result.detail.startswith(f"{calls.TRIED} of ")


def test_a_slow_start_or_a_busy_machine_cuts_nothing_short(check, monkeypatch):
    """All launches but the seventh take twenty times as long as all together may."""

    class Clock:
        now, step_s = 0.0, 1.0

        def perf_counter(self):
            self.now += self.step_s
            self.step_s = 1.0
            return self.now

    clock = Clock()
    monkeypatch.setattr(launching, "time", clock)
    monkeypatch.setattr(calls, "LONGEST_S", {False: 0.05, True: 0.05})

    def meddle(inputs, output, launch):
        if launch == 7:
            clock.step_s = 1e-4

    assert check(meddle=meddle).outcome is CheckOutcome.PASSED


def test_an_exception_of_wrong_code_is_failed(check):
    def stumble(inputs, output, launch):
        if launch == 70:
            raise ZeroDivisionError("division by zero")

    result = check(meddle=stumble)
    assert_fails(result, "raised ZeroDivisionError: division by zero, which is a bug")


def test_a_refused_tile_does_not_apply(check):
    def refuse(operation):
        raise UnsupportedError("tiles are not supported")

    for build in (refuse, lambda operation: None):
        assert check(build=build).outcome is CheckOutcome.NOT_APPLICABLE


NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_all_repeats_of_a_right_kernel_pass(context_of):
    context = context_of(NAME)
    for check in (
        calls.check_second_launch, calls.check_repeat, calls.check_every_call,
        calls.check_many_repeats, calls.check_unordered_work,
    ):  # fmt: skip
        assert check(context).outcome is CheckOutcome.PASSED
    # The exact run that the calls are compared with is one launch more.
    assert context.executable.launches == 2 + (1 + calls.CALLS) + calls.REPEATS + 1


def test_rare_nondeterminism_is_found_by_many_repeats(context_of):
    def flip_late(inputs, output, launch):
        if launch == 12:
            output[0, 0] = np.nextafter(output[0, 0], np.float32(np.inf))

    context = context_of(NAME, meddle=flip_late)
    assert calls.check_repeat(context).outcome is CheckOutcome.PASSED
    result = calls.check_many_repeats(context)
    assert result.outcome is CheckOutcome.WARNED
    assert "1 of 48 elements" in result.detail


@pytest.mark.parametrize("period", [1, 2, 6])
def test_a_result_that_changes_is_guessed_to_be_a_race(context_of, period):
    def spoil(inputs, output, launch):
        if launch % period == 0:
            output[2] += launch if period > 1 else 1

    detail = calls.check_every_call(context_of(NAME, meddle=spoil)).detail
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


@pytest.mark.parametrize(("damage", "words"), [
    (lambda i, o: i[0].fill(1), "the launches changed lhs"),
    (lambda i, o: o.base[-1:].fill(0), "outside the buffer of result"),
])  # fmt: skip
def test_damage_done_late_is_seen(context_of, damage, words):
    def meddle(inputs, output, launch):
        if launch == 15:
            damage(inputs, output)

    assert_fails(calls.check_every_call(context_of(NAME, meddle=meddle)), words)


def test_calls_without_exact_inputs_are_judged_by_the_bound(context_of):
    def wrong_once(inputs, output, launch):
        if launch == 4:
            output[0, 0] = 1e4

    for meddle in (None, wrong_once):
        context = context_of("matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16", meddle=meddle)
        result = calls.check_every_call(context)
        assert result.outcome is (CheckOutcome.FAILED if meddle else CheckOutcome.PASSED)


@pytest.mark.parametrize("declared", [(), (Trait.NONDETERMINISTIC,)])
def test_orders_that_change_pass_on_integers(context_of, declared):
    rng = np.random.default_rng(1)

    def kernel(operation, tensors):
        a, b = operands(tensors)
        order = rng.permutation(a.shape[1])
        parts = [a[:, part] @ b[part] for part in np.array_split(order, 4)]
        return to_float64(np.add.reduce(parts, dtype=np.float32))

    context = context_of(
        "matmul_32x32x256_f32t_f32t_f32t", kernel=kernel, facts=BuildFacts(declared=declared)
    )
    assert calls.check_every_call(context).outcome is CheckOutcome.PASSED
    for check in (calls.check_repeat, calls.check_many_repeats):
        result = check(context)
        assert result.outcome is (CheckOutcome.PASSED if declared else CheckOutcome.WARNED)
        assert declared or result.detail.startswith("not deterministic")


def test_a_result_that_the_next_launch_overwrites_is_reported(context_of):
    kept = []

    def same_memory(inputs, output, launch):
        kept.append(output)
        kept[0][...] = output
        return kept[0]

    result = calls.check_repeat(context_of(NAME, meddle=same_memory, writes_output=False))
    assert result.outcome is CheckOutcome.WARNED
    assert "the same memory" in result.detail
    for writes_output in (False, True):
        fresh = context_of(NAME, writes_output=writes_output)
        assert calls.check_repeat(fresh).outcome is CheckOutcome.PASSED


def test_slow_launches_are_fewer():
    assert calls.calls(0.0) == calls.calls(0.1) == calls.CALLS
    assert calls.calls(0.5) == 6
    assert calls.calls(100.0) == calls.FEWEST_CALLS


def test_repeats_find_their_inputs_again_where_memory_is_short(context_of, monkeypatch):
    """Other inputs had to be put in their place meanwhile."""
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert context.first.output.any()
    assert context.exact("integers", exact_inputs.integers).is_right
    assert not context._main_is_as_given
    assert calls.check_many_repeats(context).outcome is CheckOutcome.PASSED
    assert context._main_is_as_given


def test_another_thread_is_no_reason_for_another_result(context_of):
    threads, here = [], threading.get_ident()

    def judged(meddle):
        return calls.check_other_thread(context_of(NAME, meddle=meddle))

    def refuse(inputs, output, launch):
        if threading.get_ident() != here:
            raise LaunchError("launches come from the first thread")

    right = judged(lambda i, o, n: threads.append(threading.get_ident()))
    assert right.outcome is CheckOutcome.PASSED
    assert [thread == here for thread in threads] == [True, False, False, False, False]
    everywhere = judged(lambda i, o, n: o.fill(n))
    assert everywhere.is_failure
    assert "thread" not in everywhere.detail
    refused = judged(refuse)
    assert refused.outcome is CheckOutcome.NOT_APPLICABLE
    assert "launches come from the first thread" in refused.detail


class StressedDevice(HostDevice):
    """Whether it is under calls."""

    is_gpu = True

    def __init__(self, limits=""):
        super().__init__()
        self.spoiled_bytes = []
        self.is_spoiled = self.is_busy = False
        self.loads = 0
        self.stress_limits = lambda: limits

    @contextmanager
    def spoiled_scratch(self, size_bytes):
        self.spoiled_bytes.append(size_bytes)
        self.is_spoiled = True
        yield
        self.is_spoiled = False

    @contextmanager
    def load(self):
        self.loads += 1
        self.is_busy = True
        yield
        self.is_busy = False


@pytest.fixture
def device():
    return StressedDevice()


def test_right_kernels_pass_and_limits_are_reported(context_of, device):
    context = context_of(NAME, device=device)
    for check, launches in ((calls.check_spoiled_scratch, 2), (calls.check_under_load, 12)):
        assert check(context).text == "passed"
        # The first two launches; the exact one, with which those under load are compared.
        assert context.executable.launches == launches
    assert device.spoiled_bytes == [8 * 16 * 4]
    assert device.loads == 1
    limited = context_of(NAME, device=StressedDevice("without a lever"))
    for check in (calls.check_spoiled_scratch, calls.check_under_load):
        assert check(limited).text == "passed: without a lever"


def test_launches_are_under_stress_from_the_first_to_the_last(context_of, device):
    seen = []

    def look(inputs, output, launch):
        seen.append((device.is_spoiled, device.is_busy))
        if len(seen) == 10:
            output[2:4] = 0

    context = context_of(NAME, device=device, meddle=look)
    calls.check_spoiled_scratch(context)
    assert seen == [(False, False), (True, False)]
    seen.clear()
    result = calls.check_under_load(context)
    assert result.is_failure
    assert result.detail.startswith("while the device was busy: call 8 of 8: 12 of 48")
    assert seen[:10] == [(False, False)] * 2 + [(False, True)] * calls.CALLS_UNDER_LOAD
    assert {busy for _, busy in seen[10:]} == {False}
    assert not device.is_spoiled and not device.is_busy


@pytest.mark.parametrize(("damage", "words"), [
    (lambda o: o.astype(np.float64), "the result is float64"),
    (lambda o: o.base[-1:].fill(0), "outside the buffer of result"),
])  # fmt: skip
def test_damage_in_spoiled_memory_is_reported(context_of, device, damage, words):
    def meddle(inputs, output, launch):
        return damage(output) if device.is_spoiled else None

    assert_fails(calls.check_spoiled_scratch(context_of(NAME, device=device, meddle=meddle)), words)


def test_the_hosts_own_stress(context_of):
    """A workspace that is zero because the system's pages are; malloc keeps no block so large."""

    def kernel(operation, tensors):
        workspace = np.empty(2**26, np.float32)[:48].reshape(8, 6)
        return workspace + tensors["lhs"].astype(np.float64) @ tensors["rhs"].astype(np.float64)

    context = context_of(NAME, kernel=kernel)
    assert calls.check_second_launch(context).outcome is CheckOutcome.PASSED
    assert "it never wrote" in calls.check_spoiled_scratch(context).detail
    right = context_of(NAME, thorough=True)
    assert calls.check_spoiled_scratch(right).text == "passed"
    assert calls.check_under_load(right).text == "passed"
    assert calls.check_under_load(context_of(NAME)).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize(("every", "words"), [
    (3, "launches differ even if memory is left as it is"),
    (0, "it uses memory that it never wrote"), (1, ""),
])  # fmt: skip
def test_memory_is_blamed_only_where_nothing_else_changes_the_result(
    context_of, device, every, words
):
    """A kernel that is wrong at every or every third launch does not use other memory."""

    def meddle(inputs, output, launch):
        if launch % every == 0 if every else device.is_spoiled:
            output[...] = launch

    context = context_of(NAME, device=device, meddle=meddle)
    assert not context.first.changed_inputs and not context.second.changed_inputs
    result = calls.check_spoiled_scratch(context)
    assert_fails(result, words)
    assert ("never wrote" in result.detail) is (every == 0)


@pytest.mark.parametrize("rare", [300, calls._TRIED + calls._AT_ONCE + 1, 0])
def test_a_bug_in_one_launch_of_hundreds_is_found(context_of, device, rare, monkeypatch):
    """In the last element of every 300th launch, of one into the first output again, or of none."""

    def meddle(inputs, output, launch):
        if rare and launch % rare == 0:
            output[-1, -1] += 1

    def build(operation):
        made.append(FakeExecutable(operation, device=device, meddle=meddle))
        return made[-1]

    monkeypatch.setattr(calls, "RARE_LAUNCHES_ON_HOST_S", 600.0)
    monkeypatch.setattr(calls, "RARE_LAUNCHES_S", 600.0)
    made = []
    context = context_of(NAME, device=device, companions=Companions(build, (8, 8, 8)))
    result = calls.check_rare_launches(context)
    assert result.is_failure == bool(rare)
    if rare:
        assert result.detail.startswith(f"launch {rare - calls._TRIED} of matmul_16x16x16")
        assert calls.check_rare_launches(context).is_failure, "a failure is not kept"
    else:
        assert made[0].launches > 300
        calls.check_rare_launches(context)
        assert len(made) == 1, "shapes of a configuration share it"
    assert not calls.check_rare_launches(context_of(NAME)).is_failure
