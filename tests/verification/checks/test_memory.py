from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.verification.conftest import operands, product

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.storage import to_float64
from gemmetry.verification import context as context_module
from gemmetry.verification.checks import CheckOutcome, memory

NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_fp8_value_that_looks_like_the_sentinel_counts_as_written(context_of):
    """0xFF is -240 in e4m3fnuz, which a right result may hold."""
    for has_reference in (True, False):
        name = "matmul_64x64x16_e4m3fnuzt_e4m3fnuzn_e4m3fnuzt_alpham32"
        context = context_of(name, has_reference=has_reference)
        assert (context.first.output.view(np.uint8) == 0xFF).any()
        assert memory.check_written(context).outcome is CheckOutcome.PASSED


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

    for meddle, is_named in ((by_vectors, True), (lambda i, o, n: o.fill(n), False)):
        result = memory.check_unaligned_buffers(context_of(NAME, meddle=meddle))
        assert result.is_failure
        words = "the kernel relies on an alignment: buffers begin "
        assert result.detail.startswith(words) is ("alignment" in result.detail) is is_named


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
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.NOT_APPLICABLE
    assert context.executable.launches == 0
    for how in ({}, {"thorough": True, "meddle": refuse}):
        context = context_of(NAME, device=Promises(), **how)
        assert memory.check_unaligned_buffers(context).outcome is CheckOutcome.NOT_APPLICABLE


def test_a_narrow_range_shows(context_of):
    def through_e4m3(operation, tensors):
        return product(operation, {role: x.clip(-448, 448) for role, x in tensors.items()})

    context = context_of("matmul_12x10x64_f32t_f32n_f32t", kernel=through_e4m3)
    assert memory.check_values(context).outcome is CheckOutcome.PASSED
    assert memory.check_wide_range(context).is_failure


def test_rounded_parts_show_where_they_cancel(context_of):
    def bf16_parts(operation, tensors):
        a, b = operands(tensors)
        parts = [(a[:, i::3] @ b[i::3]).astype(ml_dtypes.bfloat16) for i in range(3)]
        return sum(to_float64(part) for part in parts)

    context = context_of("matmul_12x10x64_bf16t_bf16n_bf16t", kernel=bf16_parts)
    assert memory.check_cancellation(context).is_failure


def test_large_products_are_left_to_the_device(context_of, monkeypatch):
    assert context_of(NAME).matmul is np.matmul
    monkeypatch.setattr(context_module, "HOST_PRODUCT_FLOPS", 100)
    seen = []

    def multiply(a, b):
        seen.append(a.shape)
        return to_float64(a) @ to_float64(b)

    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "float64_matmul", lambda: multiply)
    assert memory.check_zero_mean(context).outcome is CheckOutcome.PASSED
    assert seen
