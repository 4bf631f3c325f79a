from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from gemmetry.hardware.host_device import HostDevice
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.checks import calls as repeats
from gemmetry.verification.checks import calls as stress
from gemmetry.verification.companions import Companions

NAME = "matmul_8x6x16_f32t_f32t_f32t"


class StressedDevice(HostDevice):
    """Whether it is under stress."""

    is_gpu = True

    def __init__(self, limits=""):
        super().__init__()
        self.limits = limits
        self.spoiled_bytes = []
        self.is_spoiled = self.is_busy = False
        self.loads = 0

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

    def stress_limits(self):
        return self.limits


@pytest.fixture
def device():
    return StressedDevice()


def test_right_kernels_pass_and_limits_are_reported(context_of, device):
    context = context_of(NAME, device=device)
    for check, launches in ((stress.check_spoiled_scratch, 2), (stress.check_under_load, 12)):
        assert check(context).text == "passed"
        # The first two launches; the exact one, with which those under load are compared.
        assert context.executable.launches == launches
    assert device.spoiled_bytes == [8 * 16 * 4]
    assert device.loads == 1
    limited = context_of(NAME, device=StressedDevice("without a lever"))
    for check in (stress.check_spoiled_scratch, stress.check_under_load):
        assert check(limited).text == "passed: without a lever"


def test_launches_are_under_stress_from_the_first_to_the_last(context_of, device):
    seen = []

    def look(inputs, output, launch):
        seen.append((device.is_spoiled, device.is_busy))

    context = context_of(NAME, device=device, meddle=look)
    stress.check_spoiled_scratch(context)
    assert seen == [(False, False), (True, False)]
    seen.clear()
    stress.check_under_load(context)
    assert seen == [(False, False)] * 2 + [(False, True)] * stress.CALLS_UNDER_LOAD
    assert not device.is_spoiled and not device.is_busy


def test_unwritten_memory_is_not_blamed_for_a_kernel_that_was_wrong_before(context_of, device):
    def spoil(inputs, output, launch):
        output[3] = launch

    result = stress.check_spoiled_scratch(context_of(NAME, device=device, meddle=spoil))
    assert result.is_failure
    assert "never wrote" not in result.detail


@pytest.mark.parametrize("damage", ["form", "zone"])
def test_damage_in_spoiled_memory_is_reported(context_of, device, damage):
    def meddle(inputs, output, launch):
        if device.is_spoiled and damage == "zone":
            output.base[-1] = 0
        return output.astype(np.float64) if device.is_spoiled and damage == "form" else None

    result = stress.check_spoiled_scratch(context_of(NAME, device=device, meddle=meddle))
    assert result.is_failure
    wanted = {"form": "the result is float64", "zone": "outside the buffer of result"}
    assert wanted[damage] in result.detail


@pytest.mark.parametrize("call", [1, 8])
def test_a_call_that_goes_wrong_under_load_is_failed(context_of, device, call):
    busy = []

    def late(inputs, output, launch):
        busy.extend([launch] if device.is_busy else [])
        if len(busy) == call:
            output[2:4] = 0

    context = context_of(NAME, device=device, meddle=late)
    assert repeats.check_every_call(context).outcome is CheckOutcome.PASSED
    result = stress.check_under_load(context)
    assert result.is_failure
    assert result.detail.startswith(f"while the device was busy: call {call} of 8: 12 of 48")


def test_stress_needs_a_device_that_can(context_of, plain_device):
    context = context_of(NAME, device=plain_device)
    for check in (stress.check_spoiled_scratch, stress.check_under_load):
        result = check(context)
        assert result.outcome is CheckOutcome.NOT_APPLICABLE
        assert "this device cannot" in result.detail
    assert context.executable.launches == 0


def test_the_hosts_own_stress(context_of):
    """A workspace that is zero because the system's pages are."""

    def kernel(operation, tensors):
        workspace = np.empty(10 * 2**20, np.float32)[:48].reshape(8, 6)
        return workspace + tensors["lhs"].astype(np.float64) @ tensors["rhs"].astype(np.float64)

    context = context_of(NAME, kernel=kernel)
    assert repeats.check_second_launch(context).outcome is CheckOutcome.PASSED
    assert "it never wrote" in stress.check_spoiled_scratch(context).detail
    right = context_of(NAME, thorough=True)
    assert stress.check_spoiled_scratch(right).text == "passed"
    assert stress.check_under_load(right).text == "passed"
    assert stress.check_under_load(context_of(NAME)).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (3, "launches differ even if memory is left as it is"),
        (0, "it uses memory that it never wrote"),
    ],
)
def test_memory_is_blamed_only_where_nothing_else_changes_the_result(
    context_of, device, every, words
):
    """A kernel that is wrong at every third launch does not use other memory."""

    def meddle(inputs, output, launch):
        if launch % every == 0 if every else device.is_spoiled:
            output[...] = 7

    context = context_of(NAME, device=device, meddle=meddle)
    for launch in (context.first, context.second):
        assert not launch.changed_inputs
    result = stress.check_spoiled_scratch(context)
    assert result.is_failure
    assert words in result.detail


@pytest.mark.parametrize("rare", [300, stress._TRIED + stress._AT_ONCE + 1, 0])
def test_a_bug_in_one_launch_of_hundreds_is_found(
    context_of, device, executable_of, rare, monkeypatch
):
    """In the last element of every 300th launch, of one into the first output again, or of none."""

    def meddle(inputs, output, launch):
        if rare and launch % rare == 0:
            output[-1, -1] += 1

    monkeypatch.setattr(stress, "RARE_LAUNCHES_ON_HOST_S", 600.0)
    monkeypatch.setattr(stress, "RARE_LAUNCHES_S", 600.0)
    made = []

    def build(operation):
        made.append(executable_of(operation, device=device, meddle=meddle))
        return made[-1]

    context = context_of(NAME, device=device, companions=Companions(build, (8, 8, 8)))
    result = stress.check_rare_launches(context)
    assert result.is_failure == bool(rare)
    if rare:
        assert result.detail.startswith(f"launch {rare - stress._TRIED} of matmul_16x16x16")
        assert stress.check_rare_launches(context).is_failure, "a failure is not kept"
    else:
        assert made[0].launches > 300
        stress.check_rare_launches(context)
        assert len(made) == 1, "shapes of a configuration share it"
    assert not stress.check_rare_launches(context_of(NAME)).is_failure
