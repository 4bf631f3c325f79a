from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmetry.domain.errors import OutOfMemoryError
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.bounds import ErrorSums
from gemmetry.numerics.storage import as_bits
from gemmetry.verification import context as contexts
from gemmetry.verification.after_timing import digest
from gemmetry.verification.comparison import compare
from gemmetry.verification.inputs.exact import integers
from gemmetry.verification.inputs.scaled import selects_lhs
from gemmetry.verification.protocol import verify

NAME = "matmul_8x6x16_f32t_f32t_f32t"


def test_main_buffers_keep_their_contents(context_of):
    context = context_of(NAME)
    first = context.first.output.copy()
    run = context.exact("integers", integers)
    assert context.exact("integers", integers) is run
    context.exact("selects_lhs", selects_lhs)
    assert run.is_right
    assert context.main.arrays is context.inputs
    assert not context.launcher.changed_inputs(context.main)
    np.testing.assert_array_equal(context.second.output, first)
    assert context.second.same_as(context.first)
    assert context.executable.launches == 4


def test_other_contents_go_into_one_other_place(context_of):
    context = context_of(NAME)
    assert context.first.output.any()
    placed = context.put(context.case("integers", integers).inputs)
    buffers = [buffer.ctypes.data for buffer in placed.buffers]
    assert context.put(context.inputs) is placed
    assert [buffer.ctypes.data for buffer in placed.buffers] == buffers
    assert not np.may_share_memory(placed.buffers[0], context.main.buffers[0])


def test_short_memory_makes_do_with_one_place(context_of, monkeypatch):
    context = context_of(NAME)
    monkeypatch.setattr(context.launcher.device, "free_memory_bytes", lambda: 100)
    assert context.first.output.any()
    assert context.second.same_as(context.first)
    assert context.second.result is context.first.result
    assert context.exact("integers", integers).is_right
    assert context._other is context.main


def test_no_reference_is_made_where_the_first_was_too_expensive(context_of):
    context = context_of(NAME, has_reference=False)
    assert context.reference_of(context.inputs) is None
    assert context.first_errors is context.first_sums.statistics
    assert context_of(NAME).reference_of(context.inputs) is not None


class _Comparing(HostDevice):
    """Compares with the host's code, as far as the contract goes."""

    def __init__(self, operation):
        super().__init__()
        self.operation, self.uploads, self.compared = operation, 0, 0

    def upload_reference(self, reference):
        self.uploads += 1
        return reference

    def error_sums(self, result, spec, reference, rule):
        self.compared += 1
        found = compare(self.operation, result, reference)
        is_right = not found.warned_count and found.bad is None
        sums = (getattr(found, name) for name in ErrorSums._fields)
        return ErrorSums(*sums) if is_right else None


@pytest.fixture
def comparing_context(context_of, monkeypatch):
    """A context whose device compares; the host must not where `device_only`."""

    def make(name=NAME, *, device_only=True, **more):
        context = context_of(name, **more)
        context.launcher.executable.device = context.launcher.device = _Comparing(context.operation)
        if device_only:
            monkeypatch.setattr(contexts, "compare", lambda *_, **__: 1 / 0)
        return context

    return make


def test_a_right_result_is_compared_on_the_device_alone(comparing_context, context_of):
    host = context_of(NAME).first_errors
    context = comparing_context()
    assert context.first_errors == host
    assert context.judge_by_bound(context.second, context.reference).text == "passed"
    device = context.launcher.device
    assert (device.uploads, device.compared) == (1, 2)
    other = replace(context.reference)
    for _ in range(2):
        context.compare(context.first, other)
    assert device.uploads == 2


def test_the_host_finds_out_what_is_wrong(comparing_context, context_of):
    def wrong(operation, tensors):
        result = np.matmul(tensors["lhs"], tensors["rhs"])
        result[3, 4] += 1
        return result

    context, host = (
        make(NAME, kernel=wrong, **how)
        for make, how in ((comparing_context, {"device_only": False}), (context_of, {}))
    )
    result = context.judge_by_bound(context.first, context.reference)
    assert result == host.judge_by_bound(host.first, host.reference)
    assert result.is_failure and context.evidence[""].bad[3, 4]


def test_short_memory_and_integers_are_left_to_the_host(comparing_context, monkeypatch):
    context = comparing_context(device_only=False)

    def short(*_):
        raise OutOfMemoryError("none left")

    monkeypatch.setattr(context.launcher.device, "error_sums", short)
    assert context.first_errors.bad is None
    integers = comparing_context("matmul_8x6x16_s8t_s8t_s32t", device_only=False)
    assert integers.first_errors.bad is None and integers.launcher.device.uploads == 0


class _Digesting(HostDevice):
    def digest(self, buffer, negated=()):
        return f"device {as_bits(buffer).tobytes().hex()}"


@pytest.mark.parametrize("kind", [HostDevice, _Digesting])
def test_the_digest_of_a_right_result_is_the_devices_if_it_has_one(kind, context_of):
    context, found = context_of(NAME, device=kind()), []
    given = context.executable, context.operation, context.inputs, context.reference
    verify(*given, level="quick", on_right=found.append)
    output = context.first.output
    assert found == [digest(output) if kind is HostDevice else kind().digest(output)]


def test_the_digest_is_that_of_the_result_as_it_was_judged(context_of):
    """A kernel may return the same memory again, with another result in it."""
    context = context_of(NAME)
    context.wants_digest = True
    assert context.first_errors.bad is None
    expected = digest(context.first.output)
    context.first.result[...] = 0
    assert context.first_digest == expected
