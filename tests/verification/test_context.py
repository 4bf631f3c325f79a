from __future__ import annotations

import numpy as np

from gemmetry.verification.inputs.exact import integers
from gemmetry.verification.inputs.scaled import selects_lhs

NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_main_buffers_keep_their_contents(context_of):
    context = context_of(NAME)
    first = context.first.output.copy()
    run = context.exact("integers", integers)
    context.exact("selects_lhs", selects_lhs)
    assert run.is_right
    assert context.main.arrays is context.inputs
    assert not context.launcher.changed_inputs(context.main)
    np.testing.assert_array_equal(context.second.output, first)
    assert context.second.same_as(context.first)


def test_other_contents_go_into_one_other_place(context_of):
    context = context_of(NAME)
    assert context.first.output.any()
    placed = context.put(context.case("integers", integers).inputs)
    pointers = [buffer.ctypes.data for buffer in placed.buffers]
    again = context.put(context.inputs)
    assert again is placed
    assert [buffer.ctypes.data for buffer in again.buffers] == pointers
    assert not np.may_share_memory(placed.buffers[0], context.main.buffers[0])


def test_short_memory_makes_do_with_one_place(context_of, monkeypatch):
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert context.first.output.any()
    assert context.second.same_as(context.first)
    assert context.second.result is context.first.result
    assert context.exact("integers", integers).is_right
    assert context._other is context.main


def test_exact_runs_happen_once(context_of):
    context = context_of(NAME)
    assert context.exact("integers", integers) is context.exact("integers", integers)
    assert context.executable.launches == 1


def test_no_reference_is_made_where_the_first_was_too_expensive(context_of):
    context = context_of(NAME, has_reference=False)
    assert context.reference_of(context.inputs) is None
    assert context.first_errors is context.first_sums.statistics
    assert context_of(NAME).reference_of(context.inputs) is not None
