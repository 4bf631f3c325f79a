"""The explanation of a failure whose results are those of another computation."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.verification.checks import exact
from gemmetry.verification.checks import exact as scale

NAME = "matmul_64x48x32_f32t_f32t_f32t"


def keeping_by_address():
    answers = {}

    def meddle(inputs, output, launch):
        key = tuple(array.ctypes.data for array in inputs)
        output[...] = answers.setdefault(key, output.copy())

    return meddle


def test_a_kept_result_is_known_again(context_of):
    context = context_of(NAME, meddle=keeping_by_address())
    assert exact.check_integers(context).text == "passed"
    result = exact.check_selects_lhs(context)
    assert "kept: it is the result of the inputs of integers" in result.detail
    assert "other numbers" not in result.detail


def test_the_result_of_the_first_launch_is_known_again(context_of):
    first = []

    def always_the_first(inputs, output, launch):
        first.append(np.array(output))
        output[...] = first[0]

    context = context_of(NAME, meddle=always_the_first)
    assert context.first.output.any()
    result = exact.check_integers(context)
    assert "kept: it is the result of the first launch's inputs" in result.detail


@pytest.mark.parametrize("name", [NAME, "matmul_64x48x32_bf16t_bf16n_bf16n"])
def test_what_was_never_written_is_known(context_of, name):
    """Zeros that are left out, over an output that is not zero."""
    held = []

    def leaves_zeros(inputs, output, launch):
        zero = output == 0
        output[zero] = held[-1][zero]

    context = context_of(name, meddle=leaves_zeros)
    fill = context.launcher.device.fill_bytes

    def watched(buffer, value):
        fill(buffer, value)
        held.append(np.array(buffer))

    context.launcher.device.fill_bytes = watched
    result = exact.check_selects_lhs(context)
    assert "unwritten: every wrong element has the previous value of the output" in result.detail


def test_a_shared_scale_is_not_explained_as_an_index(context_of):
    def shares_an_exponent(operation, tensors):
        a, b = (tensors[role].astype(np.float64) for role in ("lhs", "rhs"))
        unit = np.abs(a).max(1, keepdims=True) * 2.0**-24
        return (np.round(a / unit) * unit) @ b

    context = context_of(NAME, kernel=shares_an_exponent)
    assert not context.first_errors.bad_count
    result = scale.check_scaled_along_k(context)
    assert "numbers share a scale" in result.detail
    assert "index" not in result.detail and "other numbers" not in result.detail
