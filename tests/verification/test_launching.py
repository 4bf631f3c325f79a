from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from tests.verification.conftest import FakeExecutable

from gemmetry.domain.dispatch import parse_operation
from gemmetry.hardware.host_device import red_zones
from gemmetry.numerics.inputs import make_inputs
from gemmetry.verification.launching import Launcher, Offset, sentinel_mask


@pytest.fixture
def launcher():
    def make(name="matmul_8x6x4_f32t_f32t_f32t", tile=None, **how):
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution="normal", seed=1)
        return Launcher(FakeExecutable(operation, **how), operation, tile), inputs

    return make


def test_clean_launch(launcher, monkeypatch):
    launch_with, inputs = launcher()
    launch = launch_with.launch(launch_with.place(inputs), sentinel=0xFF)
    assert launch.output.shape == (8, 6)
    assert (launch.changed_inputs, launch.broken_zones) == ((), ())
    assert launch.returned_input == launch.returned_type == launch_with.form_problem(launch) == ""
    assert 0 < launch_with.fastest_s < 60
    assert launch_with.affordable(10, 1e9) == 10
    assert launch_with.affordable(10, 0.0, 3) == 3
    monkeypatch.setattr(launch_with.device, "free_memory_bytes", lambda: 100)
    assert launch_with.place(inputs).copies is None


def test_each_place_has_buffers_of_its_own(launcher):
    seen = []
    launch_with, inputs = launcher(meddle=lambda i, o, n: seen.append((i, o)))
    first, other = launch_with.place(inputs), launch_with.place(inputs)
    for place in (first, first, other):
        launch_with.launch(place, sentinel=0xFF)
    launch_with.launch(first, sentinel=0xFF, output=launch_with.new_output())
    (inputs_1, output_1), (inputs_2, output_2), (inputs_3, output_3), (_, output_4) = seen
    assert inputs_1 is inputs_2 and output_1 is output_2
    for one in (inputs_3[0], output_3, output_4, inputs[0]):
        assert not np.may_share_memory(inputs_1[0], one)
    for one in (output_3, output_4):
        assert not np.may_share_memory(output_1, one)


def test_contents_change_in_place(launcher):
    launch_with, inputs = launcher()
    placed = launch_with.place(inputs)
    buffer = placed.buffers[0]
    first = launch_with.launch(placed, sentinel=0xFF)
    before = first.output
    launch_with.rewrite(placed, [2 * array for array in inputs])
    assert placed.buffers[0] is buffer
    after = launch_with.launch(placed, sentinel=0xFF, check_inputs=True)
    np.testing.assert_allclose(after.output, 4 * before)
    assert after.changed_inputs == ()
    # One buffer twice is compared by what was read.
    assert not after.same_as(first)


@pytest.mark.parametrize("keeps_copies", [True, False])
def test_changed_inputs_are_reported(launcher, keeps_copies):
    def scribble(inputs, output, launch):
        inputs[1].reshape(-1).view(np.uint8)[-1] ^= 1

    launch_with, inputs = launcher(meddle=scribble)
    placed = launch_with.place(inputs, keep_copies=keeps_copies)
    assert (placed.copies is not None) == keeps_copies
    launch = launch_with.launch(placed, sentinel=0xFF, check_inputs=True)
    assert launch.changed_inputs == ("rhs",)


def test_zones_are_a_tile_high_and_hold_nan(launcher):
    launch_with, inputs = launcher("matmul_8x600x4_f32t_f32t_f32t", tile=(64, 32, 16))
    placed = launch_with.place(inputs, offset=Offset(16))
    for buffer in (*placed.buffers, launch_with.output_of(placed)):
        before, after = red_zones(buffer)
        assert min(before.size, after.size) >= 4096
        assert np.isnan(after[:4].view(np.float32)).all()
        assert buffer.ctypes.data % 256 == 16
    assert red_zones(placed.output)[1].size >= 64 * 600 * 4


def test_a_result_of_another_type_is_reported(launcher):
    class Lazy(np.ndarray):
        pass

    launch_with, inputs = launcher(meddle=lambda i, o, n: o.view(Lazy))
    launch = launch_with.launch(launch_with.place(inputs), sentinel=0)
    assert launch_with.form_problem(launch) == "the result is a Lazy, not a buffer of the device"


@pytest.mark.parametrize("free_bytes", [10**9, 600])
def test_queued_launches_have_outputs_of_their_own(launcher, monkeypatch, free_bytes):
    launch_with, inputs = launcher()
    placed = launch_with.place(inputs)
    monkeypatch.setattr(launch_with.device, "free_memory_bytes", lambda: free_bytes)
    found = list(launch_with.queue(placed, 5, sentinel=0xFF))
    assert len({id(launch.result) for launch in found}) == 5
    assert all(launch.same_as(found[0]) for launch in found)


def test_queued_launches_show_damaged_zones_of_inputs_first_and_last(launcher):
    def overrun(inputs, output, launch):
        if launch == 3:
            red_zones(inputs[1])[1][0] = 0
            red_zones(output)[0][-1] = 0

    launch_with, inputs = launcher(meddle=overrun)
    found = launch_with.queue(launch_with.place(inputs), 5, sentinel=0xFF)
    broken = [launch.broken_zones for launch in found]
    in_input, in_result = ([role in zones for zones in broken] for role in ("rhs", "result"))
    assert in_input == [True, False, False, False, True]
    assert in_result == [False, False, True, False, False]


def test_what_launches_are_made_within_holds_for_them_alone(launcher, monkeypatch):
    events = []

    @contextmanager
    def stress():
        events.append("enter")
        yield
        events.append("leave")

    launch_with, inputs = launcher(meddle=lambda i, o, n: events.append("run"))
    placed = launch_with.place(inputs)
    for name in ("fill_bytes", "synchronize"):
        done = getattr(launch_with.device, name)
        monkeypatch.setattr(
            launch_with.device, name,
            lambda *given, name=name, done=done: (events.append(name), done(*given)),
        )  # fmt: skip
    launch_with.launch(placed, sentinel=0xFF, within=stress())
    assert events == ["fill_bytes", "synchronize", "enter", "run", "synchronize", "leave"]
    events.clear()
    list(launch_with.queue(placed, 2, sentinel=0xFF, within=stress))
    fills = ["fill_bytes", "fill_bytes", "synchronize"]
    assert events == [*fills, "enter", "run", "run", "leave", "synchronize"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32])
def test_sentinel_mask(launcher, dtype):
    launch_with, _ = launcher("matmul_8x6x4_s8t_s8t_s32t")
    assert launch_with.sentinels == (0xA5, 0x5A)
    array = np.zeros((3, 4), dtype=dtype)
    array.view(np.uint8)[1] = 0x7F
    assert sentinel_mask(array, 0x7F).tolist() == [[False] * 4, [True] * 4, [False] * 4]
