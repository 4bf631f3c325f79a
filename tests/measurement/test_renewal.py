"""Timed launches on torch's CPU, judged as the engine does."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.hardware.host_device import HostDevice
from gemmetry.measurement.launches import make_sets
from gemmetry.measurement.renewal import WATCHED, Renewal
from gemmetry.measurement.sampler import Sampler
from gemmetry.numerics.inputs import changed_inputs, make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.after_timing import recheck

torch = pytest.importorskip("torch")

OPERATION = parse_operation("matmul_96x64x80_f32t_f32t_f32t")
INPUTS = make_inputs(OPERATION, distribution="offset_uniform", seed=42)

KEYS = {
    "none": None,
    "address and version": lambda x: (x.data_ptr(), x._version),
    "address": lambda x: x.data_ptr(),
    "first rows": lambda x: x[:4].numpy().tobytes(),
    "content": lambda x: x.numpy().tobytes(),
}


class Kernel:
    """Stores results under the `key` of each operand; computes everything before `since`."""

    def __init__(self, key, *, writes_output, since=0):
        from gemmetry.hardware.torch_device import TorchDevice

        self.device, self.facts = TorchDevice("cpu"), BuildFacts()
        self.writes_output = writes_output
        self.answers, self.key, self.since, self.launches = {}, key, since, 0

    def run(self, inputs, output):
        self.launches += 1
        result = self.found(inputs)
        return output.copy_(result) if self.writes_output else result.clone()

    def found(self, inputs):
        if self.key is None:
            return inputs[0] @ inputs[1]
        key = tuple(map(self.key, inputs))
        if key not in self.answers or self.launches < self.since:
            self.answers[key] = inputs[0] @ inputs[1]
        return self.answers[key]

    def close(self): ...


def prepared(name, monkeypatch, *, writes_output=True, cold_cache=True):
    """A sampler by whose clock every launch takes equally long, however busy the machine is."""

    def time_calls(calls):
        for call in calls:
            call()
        return [2e5] * len(calls), "wall_clock"

    monkeypatch.setattr("gemmetry.measurement.launches.MAX_SETS", 6)
    monkeypatch.setattr("gemmetry.measurement.sampler.WAIT_SHARE", 0.0)
    kernel = Kernel(KEYS[name], writes_output=writes_output)
    monkeypatch.setattr(kernel.device, "time_calls", time_calls)
    settings = RunSettings(warmup_iterations=12, cold_cache=cold_cache)
    sampler = Sampler(kernel, OPERATION, INPUTS, settings)
    sampler.prepare()
    return sampler


@pytest.mark.parametrize("writes_output", [True, False])
@pytest.mark.parametrize("cold_cache", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_answers_from_memory_are_wrong_and_not_fast(name, cold_cache, writes_output, monkeypatch):
    sampler = prepared(name, monkeypatch, writes_output=writes_output, cold_cache=cold_cache)
    reference = compute_reference(OPERATION, INPUTS)
    is_honest = name in ("none", "content")

    def is_wrong(_number):
        sampler.sample_round(4)
        outputs = sampler.recheck()
        return recheck(OPERATION, outputs, lambda: reference, inputs=INPUTS).is_failure

    is_wrong(0)  # The first round may fill the memory, and not every line goes into the first rows.
    # Which launches change is a matter of chance.
    assert any(map(is_wrong, range(8 if is_honest else 40))) is not is_honest
    sampler.close()


@pytest.mark.parametrize(("name", "changed"), [("none", 0), ("address", 1)])
def test_only_outputs_that_say_something_new_are_given(name, changed, monkeypatch):
    """A line with the opposite sign is compared on the device with a line that is judged anyway."""
    sampler = prepared(name, monkeypatch)
    for _ in range(12):  # In each it is drawn which launches change.
        sampler.sample_round(8)
    outputs = sampler.recheck()
    right = INPUTS[0] @ INPUTS[1]
    for output in outputs:
        np.testing.assert_allclose(output.array, right, rtol=1e-5)
    assert [output.change is not None for output in outputs] == [False] + [True] * changed
    sampler.close()


@pytest.mark.parametrize("writes_output", [True, False])
@pytest.mark.parametrize("name", ["none", "address"])
def test_what_the_device_recognises_is_not_judged_again(name, writes_output, monkeypatch):
    """Results of changed inputs are recognised too, but none that was kept from before."""
    from gemmetry.hardware.torch_device import digest

    right = digest(torch.from_numpy(INPUTS[0]) @ torch.from_numpy(INPUTS[1]))

    def left_over(known):
        sampler = prepared(name, monkeypatch, writes_output=writes_output)
        device = type(sampler._device)
        monkeypatch.setattr(device, "digest", lambda _, *what: digest(*what), raising=False)
        for _ in range(3):
            sampler.sample_round(8)
        outputs = sampler.recheck(known)
        sampler.close()
        return [output.change is not None for output in outputs]

    # How many launches have changed inputs is drawn at random.
    assert left_over("") and left_over("words:another")
    assert not left_over(right) if name == "none" else all(left_over(right))


@pytest.fixture
def sets():
    return make_sets(HostDevice(), OPERATION, INPUTS, 5, rotate_outputs=True)


def test_changes_of_a_round(sets):
    renewal = Renewal(HostDevice(), OPERATION, INPUTS, seed=1)
    assert renewal.prepare([], fills=True) == []
    changes = set()
    for number in range(8):
        for one in sets:
            one.output[...] = number
            one.launched = True
        calls = renewal.prepare(sets, fills=True)
        chosen = [one for one in sets if one.change is not None]
        assert len(chosen) == WATCHED
        assert len({one.change for one in chosen}) == 1
        assert all(one.poisoned for one in chosen)
        for call in calls:
            call()
        assert sum(bool(np.isnan(one.output).all()) for one in sets) == 1
        assert sum(bool((one.output == number).all()) for one in sets) == len(sets) - 1
        for one in sets:
            wanted = INPUTS
            if one.change is not None:
                changes.add((one.change.place, one.change.lines))
                wanted = changed_inputs(OPERATION, INPUTS, one.change)
            assert all(map(np.array_equal, one.inputs, wanted))
        renewal.undo()
        assert sum(one.launched for one in sets) == len(sets) - WATCHED
    assert all(
        np.array_equal(a, b) for one in sets for a, b in zip(one.inputs, INPUTS, strict=True)
    )
    assert {place for place, _ in changes} == {0, 1}
    assert len(changes) == 8


def test_the_last_one_is_among_them_where_it_must_be(sets):
    renewal = Renewal(HostDevice(), OPERATION, INPUTS, seed=1)
    for _ in range(4):
        renewal.prepare(sets, fills=False, latest=True)
        assert sets[-1].change is not None
        renewal.undo()


def test_places_follow_the_seed_and_the_round(sets):
    def places(seed):
        renewal = Renewal(HostDevice(), OPERATION, INPUTS, seed)
        found = []
        for _ in range(4):
            renewal.prepare(sets[:1], fills=False)
            found.append((sets[0].change.place, sets[0].change.lines))
            renewal.undo()
        return found

    assert places(1) == places(1)
    assert places(1) != places(2)
