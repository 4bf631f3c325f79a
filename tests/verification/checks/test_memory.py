from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware.host_device import HostDevice
from gemmetry.verification.checks import CheckOutcome, memory
from gemmetry.verification.checks import memory as values

NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_launches_happen_once(context_of):
    context = context_of(NAME)
    values.check_values(context)
    memory.check_written(context)
    memory.check_inputs_unchanged(context)
    assert context.executable.launches == 1


def test_fp8_value_that_looks_like_the_sentinel_counts_as_written(context_of):
    """0xFF is -240 in e4m3fnuz, which a right result may hold."""
    name = "matmul_64x64x16_e4m3fnuzt_e4m3fnuzn_e4m3fnuzt_alpham32"
    context = context_of(name)
    assert (context.first.output.view(np.uint8) == 0xFF).any()
    assert memory.check_written(context).outcome is CheckOutcome.PASSED
    without = context_of(name, has_reference=False)
    assert memory.check_written(without).outcome is CheckOutcome.PASSED


def test_zones_do_not_apply_where_there_are_none(context_of, plain_device):
    context = context_of(NAME, device=plain_device)
    for check in (memory.check_red_zones, memory.check_unaligned_buffers):
        assert check(context).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize("offset", [16, 0])
def test_buffers_that_are_not_aligned(context_of, offset):
    """A kernel that takes 64 bytes for granted, and one that does not."""

    def by_vectors(inputs, output, launch):
        if output.ctypes.data % 64 >= offset > 0:
            output[...] = 0

    context = context_of(NAME, meddle=by_vectors)
    assert memory.check_red_zones(context).outcome is CheckOutcome.PASSED
    result = memory.check_unaligned_buffers(context)
    assert result.is_failure == (offset == 16)


@pytest.mark.parametrize("dtypes", ["f32t_f32t_f32t", "bf16t_bf16n_bf16t", "f64t_f64t_f64t"])
def test_buffers_begin_at_odd_elements_on_a_host(context_of, dtypes):
    seen = []
    context = context_of(f"matmul_8x6x16_{dtypes}", meddle=lambda i, o, n: seen.append((*i, o)))
    assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.PASSED
    for buffer in seen[0]:
        elements, rest = divmod(buffer.ctypes.data % 256, buffer.itemsize)
        assert rest == 0
        assert elements % 2 == 1


def test_a_vector_at_a_time_is_named_an_alignment(context_of):
    def by_vectors(inputs, output, launch):
        if inputs[0].ctypes.data % 8:
            output[...] = 0

    result = memory.check_unaligned_buffers(context_of(NAME, meddle=by_vectors))
    assert result.is_failure
    assert result.detail.startswith("the kernel relies on an alignment: buffers begin ")
    always = memory.check_unaligned_buffers(context_of(NAME, meddle=lambda i, o, n: o.fill(n)))
    assert always.is_failure
    assert "alignment" not in always.detail


def test_a_promised_alignment_is_kept_and_large_operands_stay_until_paranoid(
    context_of, monkeypatch
):
    class Promises(HostDevice):
        alignment_bytes = 16

    def refuse(inputs, output, launch):
        raise LaunchError("needs 128 bytes")

    for thorough, little in ((False, 2**20), (True, 0)):
        monkeypatch.setattr(memory, "LITTLE_BYTES", little)
        seen = []
        context = context_of(
            NAME, device=Promises(), thorough=thorough, meddle=lambda i, o, n, to=seen: to.append(o)
        )
        assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.PASSED
        assert seen[0].ctypes.data % 256 == 16
    for how in ({}, {"thorough": True, "meddle": refuse}):
        context = context_of(NAME, device=Promises(), **how)
        assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.NOT_APPLICABLE


def test_without_memory_for_more_buffers_none_are_made(context_of, monkeypatch):
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.NOT_APPLICABLE
    assert context.executable.launches == 0
