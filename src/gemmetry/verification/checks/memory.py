"""Checks of what a launch writes to memory, and where.

Checks by value: every element is within its error bound, on inputs of several kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gemmetry.domain.contracts import RedZoneDevice
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import Array
from gemmetry.verification.checks import CheckResult, bug_of, failed, not_applicable, passed
from gemmetry.verification.comparison import outside_bound
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import special as special_inputs
from gemmetry.verification.launching import Launch, Offset, sentinel_mask

UNALIGNED_BYTES = 16
"""Alignment that the widest vector load and a tensor map require (PTX ISA, ld.v4 and tensormap);
assumed where a device does not specify one."""

LITTLE_BYTES = 2**26
"""Size of the operands up to which uploading them to a GPU again costs some milliseconds."""

_MOST_ELEMENTS = 16
"""Offsets in elements are odd and below this value, so that no vector of two or more elements is
aligned."""


def check_form(context: Context) -> CheckResult:
    """The result has the right type, shape and dtype and is not one of the inputs."""
    problem = context.launcher.form_problem(context.first)
    return failed(problem) if problem else passed()


def check_written(context: Context) -> CheckResult:
    """No element still holds the sentinel that the output was filled with."""
    if not context.executable.writes_output:
        return not_applicable("the provider allocates its own output")
    launch = context.first
    left = sentinel_mask(launch.output, launch.sentinel)
    if not left.any():
        return passed()
    # A correct element may equal the sentinel (fp8 has 256 values), so it must also be wrong, or
    # equal the other sentinel after the second launch.
    if context.reference is not None:
        count = int(outside_bound(context.operation, launch.output, context.reference, left).sum())
    else:
        count = int((left & sentinel_mask(context.second.output, context.second.sentinel)).sum())
    if count == 0:
        return passed()
    context.keep_evidence(launch, None, None)
    return failed(f"{count} of {left.size} elements were never written")


def check_inputs_unchanged(context: Context) -> CheckResult:
    """After the launch every input holds the bytes it held before."""
    changed = context.first.changed_inputs
    return failed(f"the launch changed {', '.join(changed)}") if changed else passed()


def check_red_zones(context: Context) -> CheckResult:
    """Nothing was written immediately before or after any buffer."""
    if context.first.broken_zones is None:
        return not_applicable("this device has no red zones around its buffers")
    problem = zone_problem(context.first)
    return failed(problem) if problem else passed()


def check_unaligned_buffers(context: Context) -> CheckResult:
    """The result is correct in new buffers that begin an odd number of elements after a multiple of
    256 bytes. Where the device guarantees an alignment, such as 16 bytes on a GPU, they begin at
    that offset instead; large ones only at level paranoid, as they are uploaded again."""
    device, operation = context.launcher.device, context.operation
    if not isinstance(device, RedZoneDevice):
        return not_applicable("buffers cannot be placed at chosen addresses on this device")
    promised = getattr(device, "alignment_bytes", UNALIGNED_BYTES)
    offset = Offset(UNALIGNED_BYTES)
    if promised == 1:
        rng = np.random.default_rng([context.seed % 2**64, *operation.matmul_shape])
        offset = Offset(elements=1 + 2 * int(rng.integers(_MOST_ELEMENTS // 2)))
    elif operation.bytes > LITTLE_BYTES and not context.thorough:
        return not_applicable("the operands are large; paranoid tries other addresses")
    if not context.launcher.has_room(operation.bytes):
        return not_applicable("there is not enough memory for further buffers")
    try:
        launch = _in_new_buffers(context, offset)
    except DispatchError as error:
        # A sticky device error ends the verification.
        device.synchronize()
        if promised == 1 or bug_of(error):
            raise
        return not_applicable(f"it refuses buffers at multiples of {promised} bytes: {error}")
    problem = context.launcher.form_problem(launch) or zone_problem(launch)
    if problem:
        return failed(problem)
    if launch.same_as(context.first):
        return passed()
    result = context.judge_by_bound(launch, context.reference)
    if not result.is_failure:
        return result
    aligned = context.judge_by_bound(_in_new_buffers(context, Offset()), context.reference)
    if aligned.is_failure:
        return result
    where = f"{offset.elements} elements" if offset.elements else f"{offset.size_bytes} bytes"
    why = f"the kernel relies on an alignment: buffers begin {where} after a multiple of 256 bytes"
    return result.because(why)


def _in_new_buffers(context: Context, offset: Offset) -> Launch:
    placed = context.launcher.place(context.inputs, offset=offset, keep_copies=False)
    return context.launcher.launch(placed)


def zone_problem(launch: Launch) -> str:
    """Describes damage that a launch did to red zones; "" if there is none."""
    if not launch.broken_zones:
        return ""
    return f"the launch wrote outside the buffer of {', '.join(launch.broken_zones)}"


Inputs = tuple[Array, ...]


def check_values(context: Context) -> CheckResult:
    """Every element is within its error bound of the float64 (integers: exact) reference. Without a
    reference the check is named ``freivalds`` and tests sums over rows and columns."""
    if context.reference is None:
        context.check = "freivalds"
        return replace(context.judge_sums(context.first, context.first_sums), name=context.check)
    return context.judge(context.first, context.reference.value, context.first_errors)


def check_zero_mean(context: Context) -> CheckResult:
    """Normal inputs: products cancel, so small errors are not hidden by a large result."""
    inputs = make_inputs(context.operation, distribution="normal", seed=context.seed + 1)
    return _judge(context, inputs)


def check_same_sign(context: Context) -> CheckResult:
    """U[0, 1): nothing cancels, so truncation errors add up."""
    inputs = make_inputs(context.operation, distribution="uniform", seed=context.seed + 1)
    return _judge(context, inputs)


def check_wide_range(context: Context) -> CheckResult:
    """Inputs spread over up to 2^±12: products differ by a factor of 2^48."""
    return judge_special(context, "wide_range", special_inputs.wide_range)


def check_cancellation(context: Context) -> CheckResult:
    """Products that cancel to zero: the remainder must be small compared with |A||B|."""
    return judge_special(context, "cancellation", special_inputs.cancellation)


def judge_special(
    context: Context, name: str, make: Callable[[Operation, int], Inputs | None]
) -> CheckResult:
    """Compare the result on inputs that `make` draws with a reference of their own."""
    reason = special_inputs.objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(reason)
    inputs = make(context.operation, context.seed)
    if inputs is None:
        return not_applicable("the range of these formats is too small for such inputs")
    # Errors on extreme inputs may be larger than usual; only wrong elements count.
    result = _judge(context, inputs)
    return result if result.is_failure else passed()


def _judge(context: Context, inputs: Inputs) -> CheckResult:
    return context.judge_by_bound(context.launch_on(inputs), context.reference_of(inputs))
