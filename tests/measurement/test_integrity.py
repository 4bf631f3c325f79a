from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.measurement import launches as integrity
from gemmetry.measurement.launches import Launches, make_sets
from gemmetry.numerics.inputs import changed_inputs


def _check(kit, device, launch_ns=1e5):
    sets = make_sets(device, kit.operation, kit.inputs, 2, rotate_outputs=True)
    launches = Launches(kit.executable(device), sets)
    return integrity.check_stream(device, launches, launch_ns)


@pytest.mark.parametrize(("launch_ns", "count"), [(1e3, 200), (1e5, 20), (5e6, 1)])
def test_as_many_launches_as_show_small_unseen_work(kit, launch_ns, count):
    device = kit.stream_device(durations_ns=[launch_ns])
    wall_ns = _check(kit, device, launch_ns)
    assert device.checked == [count]
    assert wall_ns == pytest.approx(launch_ns)


def test_unseen_work_is_reported(kit):
    device = kit.stream_device(durations_ns=[1e5], seen_share=0.25)
    with pytest.raises(LaunchError) as reported:
        _check(kit, device)
    assert "wait_stream" in reported.value.hint
    tries, waits = device.checked[:3], device.checked[3:]
    assert tries == [20] * 3
    assert len(waits) >= 3
    assert not any(waits), "without launches nothing keeps the device busy"


@pytest.mark.parametrize(("undisturbed", "is_right"), [(6, True), (99, False)])
def test_a_program_that_disturbs_now_and_then_does_not_make_work_unseen(kit, undisturbed, is_right):
    """Of the waits without launches it disturbs one in ten; of the tries all before one."""
    device = kit.stream_device(durations_ns=[1e5])
    seen = device.stream_and_wall_ns

    def disturbed(calls):
        tries = sum(count > 0 for count in device.checked)
        is_hit = tries < undisturbed if calls else len(device.checked) % 10 == 0
        device.others_ns = 1e6 if is_hit else 1e4
        return seen(calls)

    device.stream_and_wall_ns = disturbed
    if is_right:
        assert _check(kit, device) > 0
    else:
        with pytest.raises(LaunchError):
            _check(kit, device)
        assert sum(count > 0 for count in device.checked) > 6


def test_one_disturbed_try_is_not_unseen_work_and_does_not_hide_more_of_it(kit):
    """Each of the last tries misses 0.6 ms, and the second one takes 8 ms within the stream."""
    device = kit.stream_device(durations_ns=[1e5])
    times = iter([(2e5, 2e6), (2e6, 2e6)])
    device.stream_and_wall_ns = lambda _calls: next(times)
    assert _check(kit, device) == pytest.approx(1e5)
    times = iter([(2e6, 2.6e6), (8e6, 8.6e6), (2e6, 2.6e6), *[(1e4, 2e4)] * 200])
    with pytest.raises(LaunchError):
        _check(kit, device)


@pytest.mark.parametrize(("busy_s", "expected"), [(0.0, 0.0), (0.05, 0.05), (9.0, 0.3)])
def test_threads_that_run_on_after_a_launch(busy_s, expected):
    """Sleeping moves the wall clock, and other threads compute until `busy_s`."""
    slept: list[float] = []
    found = integrity.seconds_running_on(
        lambda: sum(slept), lambda: min(sum(slept), busy_s), slept.append
    )
    assert found == pytest.approx(expected, abs=0.005)


class Remembering:
    """Returns stored results again: such a launch takes 100 ns, others take 400 ns."""

    def __init__(self, executable):
        self.executable, self.device = executable, executable.device
        self.known: set[bytes] = set()
        self.seen: list[np.ndarray] = []

    def run(self, inputs, output):
        key = b"".join(array.tobytes() for array in inputs)
        slow = key not in self.known
        self.seen += [np.array(inputs[0])] if slow else []
        self.known.add(key)
        self.device.durations_ns = [400.0 if slow else 100.0]
        return self.executable.run(inputs, output)


def _ratio(kit, executable, seen=lambda one, result: None):
    [first] = make_sets(executable.device, kit.operation, kit.inputs, 1, rotate_outputs=True)
    executable.run(first.inputs, first.output)
    new = integrity.NewInputs(executable, kit.operation, kit.inputs, seen)
    new.try_on(first)
    for buffer, array in zip(first.inputs, kit.inputs, strict=True):
        assert np.array_equal(buffer, array), "what is timed afterwards has the inputs again"
    return new.ratio


def test_reused_results_are_reported(kit):
    executable = Remembering(kit.executable(kit.device()))
    assert _ratio(kit, executable) == 4.0
    assert len(executable.known) == len(executable.seen) == 19, "all inputs but the first were new"


def test_one_of_the_results_of_new_inputs_is_kept_with_its_change(kit):
    seen = []
    executable = kit.executable(kit.device())
    _ratio(kit, executable, lambda one, result: seen.append((one.change, np.array(result))))
    [(change, result)] = seen
    a, b = changed_inputs(kit.operation, kit.inputs, change)
    np.testing.assert_array_equal(result, a @ b)
    assert not np.array_equal(result, kit.inputs[0] @ kit.inputs[1])


@pytest.mark.parametrize("disturbed", [0, 3, 6, 15])
def test_what_is_honest_or_was_disturbed_for_a_while_remembers_nothing(kit, disturbed):
    # The launch before; then known and new in turns, the first new ones disturbed.
    durations_ns = [1e3, *[1e3, 9e3] * disturbed, *[1e3] * 40]
    executable = kit.executable(kit.device(durations_ns=durations_ns))
    assert _ratio(kit, executable) == 1.0
    assert executable.launches == 7 or disturbed
