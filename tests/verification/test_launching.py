from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.verification.launching import Launcher, sentinel_mask


@pytest.fixture
def launcher(executable_of):
    def make(name="matmul_8x6x4_f32t_f32t_f32t", **how):
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution="normal", seed=1)
        return Launcher(executable_of(operation, **how), operation), inputs

    return make


def test_clean_launch(launcher):
    launch_with, inputs = launcher()
    launch = launch_with.launch(inputs, sentinel=0xFF)
    assert launch.output.shape == (8, 6)
    assert launch.changed_inputs == ()
    assert launch.returned_input == ""
    assert launch.broken_zones == ()
    assert launch_with.form_problem(launch.output) == ""


def test_every_launch_has_new_buffers(launcher):
    seen = []
    launch_with, inputs = launcher(meddle=lambda i, o, n: seen.append((i, o)))
    launch_with.launch(inputs, sentinel=0xFF)
    launch_with.launch(inputs, sentinel=0x7F)
    (first_inputs, first_output), (second_inputs, second_output) = seen
    assert not np.may_share_memory(first_output, second_output)
    assert not np.may_share_memory(first_inputs[0], second_inputs[0])
    assert not np.may_share_memory(first_inputs[0], inputs[0])


def test_output_holds_the_sentinel_before_the_launch(launcher):
    held = []

    def kernel(operation, tensors):
        return np.zeros((8, 6))

    launch_with, inputs = launcher(kernel=kernel)
    run = launch_with.executable.run
    launch_with.executable.run = lambda i, o: (held.append(o.copy()), run(i, o))[1]
    launch_with.launch(inputs, sentinel=0xFF)
    assert np.isnan(held[0]).all()


def test_returned_view_of_an_input_is_told(launcher):
    launch_with, inputs = launcher(meddle=lambda i, o, n: i[1].reshape(-1))
    assert launch_with.launch(inputs, sentinel=0).returned_input == "rhs"


def test_integers_have_their_own_sentinels(launcher):
    launch_with, _ = launcher("matmul_8x6x4_s8t_s8t_s32t")
    assert launch_with.sentinels == (0xA5, 0x5A)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32])
def test_sentinel_mask(dtype):
    array = np.zeros((3, 4), dtype=dtype)
    array.view(np.uint8)[1] = 0x7F
    mask = sentinel_mask(array, 0x7F)
    assert mask.shape == (3, 4)
    assert mask[1].all() and mask.sum() == 4
