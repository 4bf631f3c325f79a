"""Verifies the results of timed launches, on unchanged and on changed inputs.

Compares results with references on the device where they are, as far as it can: the same bounds,
without moving results to the host.

Applies the checks of other harnesses to a result, for comparison with gemmetry's verdict.

Each is implemented from its published definition; none of them affects the verdict.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gemmetry.domain.contracts import Buffer, Device, DigestingDevice
from gemmetry.domain.errors import OutOfMemoryError
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import BoundRule, ErrorSums
from gemmetry.numerics.inputs import (
    InputChange,
    changed_inputs,
    negates_result,
    negative,
    part_with_lines,
    reference_of_lines,
    take_lines,
    with_lines,
)
from gemmetry.numerics.references import Reference, to_logical, to_storage
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    as_bits,
    numpy_dtype,
    quantize,
    same_bytes,
    to_float64,
)
from gemmetry.verification.checks import CheckResult, failed, passed, warned
from gemmetry.verification.comparison import ErrorStatistics, compare
from gemmetry.verification.freivalds import freivalds
from gemmetry.verification.guess import guess_bug
from gemmetry.verification.launching import Launch

NAME = "after_timing"

TimedOutput = tuple[str, Array, InputChange | None]
"""Description of the output, the output as a host array in storage shape, and the change of the
inputs before the launch."""


FindReference = Callable[[], Reference | None]
"""Returns the reference of the unchanged inputs; None: there is none."""


def digest(output: Array) -> str:
    """A digest of all bytes of a host array, which identifies an equal output: it takes 25 ms for a
    bf16 result of 4096², whose comparison takes 0.2 s (one core of an x86 server)."""
    return hashlib.blake2b(as_bits(output).data, digest_size=32).hexdigest()


def recheck(
    operation: Operation,
    outputs: Iterable[TimedOutput],
    find_reference: FindReference,
    *,
    inputs: Sequence[Array],
    right: str = "",
    right_result: Array | None = None,
    is_repeatable: bool = False,
    declared: Collection[Trait] = (),
    seed: int = 42,
) -> CheckResult:
    """Verify the results of timed launches: every output, not only the last one.

    An output that is bit for bit equal to a verified one needs no further comparison. Neither does
    the output for one negated line where the result is linear in the product: bounds do not depend
    on the sign, so a correct line is also correct with the opposite sign for the negated line.

    Args:
        find_reference: returns the reference of `inputs`; called only where an output has to be
            compared element by element. None: Freivalds' test is used.
        inputs: host arrays of ``operation.inputs``, without changes.
        right: the digest of an output of `inputs` that was verified; "" if none is known.
        right_result: an output of `inputs` that was found to be the verified one, with which what a
            change leaves as it was is compared before the reference is.
        is_repeatable: launches on the same inputs gave the same bits; others are a finding then.

    Returns:
        The check ``after_timing``; :func:`gemmetry.verification.protocol.with_check` adds it to the
        verdict.
    """
    spec = operation.output
    judge = _Judge(operation, inputs, find_reference, declared, seed, right, right_result)
    differing: list[str] = []
    for label, output, change in outputs:
        if output.dtype != numpy_dtype(spec.dtype) or output.shape != spec.storage_shape:
            return failed(f"{label}: it is {output.dtype} of shape {output.shape}", name=NAME)
        problem, first_bad = judge.problem(output, change)
        if problem:
            since = "" if change is None else f", with {change} before the launch"
            return failed(f"{label}{since}: {problem}", first_bad, NAME)
        if is_repeatable and right and change is None and not judge.was_known:
            differing.append(label)
    if differing and not set(declared) & {Trait.NONDETERMINISTIC, Trait.STOCHASTIC_ROUNDING}:
        return warned(
            f"{differing[0]} is within its bound, but differs in its bits from the result that was "
            "verified, although launches agreed until they were timed",
            NAME,
        )
    return passed(name=NAME)


@dataclass
class _Judge:
    operation: Operation
    inputs: Sequence[Array]
    find_reference: FindReference
    declared: Collection[Trait]
    seed: int
    right_digest: str
    right: Array | None = None
    """An output of the unchanged inputs that has been verified."""
    was_known: bool = False
    """Whether the latest output was equal to one that had been verified."""

    @cached_property
    def reference(self) -> Reference | None:
        return self.find_reference()

    def problem(self, output: Array, change: InputChange | None) -> tuple[str, str]:
        """Fault of `output`, and its first wrong element; "" if it is correct."""
        self.was_known = self._is_known(output, change)
        if self.was_known:
            return "", ""
        if self.reference is None:
            operation, inputs = self.operation, self.inputs
            now = inputs if change is None else changed_inputs(operation, inputs, change)
            found = freivalds(operation, now, output, seed=self.seed, declared=self.declared)
            return ("" if found.is_right else found.detail), found.statistics.first_bad
        if change is None:
            found_here = self._compared(output, self.reference)
            self.right = self.right if found_here[0] else output
            return found_here
        problem = self._lines_problem(output, self.reference, change)
        return (problem, "") if problem else self._rest_problem(output, self.reference, change)

    def _is_known(self, output: Array, change: InputChange | None) -> bool:
        """Whether `output` equals a verified one except for the sign of a line that was negated."""
        if change is not None:
            if not negates_result(self.operation, change):
                return False
            logical = to_logical(output, self.operation.output)
            lines = negative(take_lines(self.operation, logical, change))
            whole = with_lines(self.operation, logical, change, lines)
            output = to_storage(whole, self.operation.output)
        if self.right is not None and same_bytes(output, self.right):
            return True
        if not self.right_digest or digest(output) != self.right_digest:
            return False
        self.right = output
        return True

    def _compared(self, output: Array, reference: Reference) -> tuple[str, str]:
        errors = compare(self.operation, output, reference, declared=self.declared)
        if errors.bad is None:
            return "", ""
        guess = guess_bug(self.operation, output, reference.value, errors.bad)
        text = f"{errors.bad_count} of {errors.elements} elements are wrong ({guess})"
        return text, errors.first_bad

    def _lines_problem(self, output: Array, reference: Reference, change: InputChange) -> str:
        """Compare the lines that the change affects."""
        part, _ = part_with_lines(self.operation, self.inputs, [change])
        logical = to_logical(output, self.operation.output)
        lines = to_storage(take_lines(self.operation, logical, change), part.output)
        wanted = reference_of_lines(self.operation, self.inputs, reference, change)
        errors = compare(part, lines, wanted, declared=self.declared)
        if errors.bad is None:
            return ""
        before = reference.of(lambda array: take_lines(self.operation, array, change))
        if compare(part, lines, before, declared=self.declared).bad is None:
            what = "it is the result for the previous inputs"
            return f"{what}: launches did not compute, or returned a kept result"
        count = f"{errors.bad_count} of {errors.elements} elements"
        return f"{count} of that line are wrong (its first: {errors.first_bad})"

    def _rest_problem(
        self, output: Array, reference: Reference, change: InputChange
    ) -> tuple[str, str]:
        """Compare everything else: equal to a verified output, or within the bound."""
        operation, spec = self.operation, self.operation.output
        logical = to_logical(output, spec)

        def filled(known: Array) -> Array:
            return to_storage(with_lines(operation, logical, change, known), spec)

        if self.right is not None:
            known = take_lines(operation, to_logical(self.right, spec), change)
            if same_bytes(filled(known), self.right):
                return "", ""
        known = take_lines(operation, reference.value, change)
        if not spec.dtype.is_integer:
            known = quantize(to_float64(known), spec.dtype)
        return self._compared(filled(known.astype(output.dtype)), reference)


@runtime_checkable
class ComparingDevice(Protocol):
    """A device that compares results with float64 references."""

    def upload_reference(self, reference: Reference) -> Any | None:
        """The reference on the device; None where it is of integers, where memory is short, or
        where the host is just as good."""

    def error_sums(
        self, result: Buffer, spec: TensorSpec, reference: Any, rule: BoundRule
    ) -> ErrorSums | None:
        """Errors of `result`; None unless it has the form of `spec` and all of its elements are
        numbers within their warn bounds. What is wrong with others the host finds out.

        Args:
            reference: what :meth:`upload_reference` returned.
        """


def digest_of(launch: Launch) -> str:
    """The digest of a launch's result, by which timed launches are recognised as right; by the
    device where it can compute one."""
    found = None
    if isinstance(launch.device, DigestingDevice) and not launch.returned_type:
        found = launch.device.digest(launch.result)
    return digest(launch.output) if found is None else found


class ReferenceOnDevice:
    """The latest reference that results were compared with on a device."""

    def __init__(self) -> None:
        self._reference: Reference | None = None
        self._uploaded: Any | None = None

    def statistics(
        self,
        device: Device,
        result: Buffer,
        spec: TensorSpec,
        reference: Reference,
        rule: BoundRule,
    ) -> ErrorStatistics | None:
        """What :func:`gemmetry.verification.comparison.compare` finds about a `result` on `device`
        whose elements are all within their warn bounds; None for others, and where the device
        compares nothing."""
        if not isinstance(device, ComparingDevice):
            return None
        try:
            if self._reference is not reference:
                self.clear()
                self._uploaded = device.upload_reference(reference)
                self._reference = reference
            if self._uploaded is None:
                return None
            sums = device.error_sums(result, spec, self._uploaded, rule)
        except OutOfMemoryError:
            self.clear()
            return None
        return sums and ErrorStatistics(elements=reference.value.size, **sums._asdict())

    def clear(self) -> None:
        """Release the device's memory."""
        self._reference = self._uploaded = None


ALLCLOSE = "allclose(1e-2)"
NORMALISED_DIFFERENCE = "normalised difference < 1e-3"
ABSOLUTE_DIFFERENCE = "absolute difference <= 0.1"

RIVALS = (ALLCLOSE, NORMALISED_DIFFERENCE, ABSOLUTE_DIFFERENCE)
"""Names, as used in ``Verdict.rivals``."""

_ROWS = 256
"""Rows compared at a time, which bounds the temporaries."""


def judge(operation: Operation, output: Array, reference: Reference) -> dict[str, bool]:
    """Maps each check's name to whether it accepts `output` (host array in storage shape).

    No check accepts a result of another shape or dtype. The other harnesses compare with a
    reference computed in the result's precision, so gemmetry's reference is rounded to the result's
    format for them.
    """
    spec = operation.output
    if output.shape != spec.storage_shape or output.dtype != numpy_dtype(spec.dtype):
        return dict.fromkeys(RIVALS, False)
    got = to_logical(output, spec)
    got = got.reshape(-1, got.shape[-1])
    wanted = reference.value.reshape(got.shape)
    sums = np.zeros(2)
    is_close = is_near = True
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, got.shape[0], _ROWS):
            x = to_float64(got[start : start + _ROWS])
            y = _rounded(operation, wanted[start : start + _ROWS])
            is_close = is_close and allclose(x, y)
            is_near = is_near and absolute_difference(x, y)
            sums += [2 * np.vdot(x, y), np.vdot(x, x) + np.vdot(y, y)]
    return {
        ALLCLOSE: is_close,
        NORMALISED_DIFFERENCE: normalised_difference(*sums),
        ABSOLUTE_DIFFERENCE: is_near,
    }


def allclose(got: Float64Array, wanted: Float64Array) -> bool:
    """KernelBench (src/eval.py, ``get_tolerance_for_precision`` for bf16 and fp16, passed to
    ``torch.allclose``): |got - wanted| ≤ 1e-2 + 1e-2·|wanted| everywhere; NaN is close to nothing,
    infinity only to itself. Applied here to every format."""
    close = (np.abs(got - wanted) <= 1e-2 + 1e-2 * np.abs(wanted)) & np.isfinite(wanted)
    return bool((close | (got == wanted)).all())


def normalised_difference(twice_product: float, squares: float) -> bool:
    """DeepGEMM (deep_gemm/testing/numeric.py, ``calc_diff``, and its limit in tests/test_fp8.py):
    1 - 2⟨x, y⟩ / (‖x‖² + ‖y‖²) < 1e-3 over the whole result; NaN is below nothing, and two results
    of zeros are equal."""
    if squares == 0:
        return True
    return math.isfinite(squares) and bool(1 - twice_product / squares < 1e-3)


def absolute_difference(got: Float64Array, wanted: Float64Array) -> bool:
    """fast.cu (matmul.cu, ``verify_matrix``): a loop over the elements that fails at the first with
    |got - wanted| > 0.1. NaN is accepted, as no comparison with NaN is true."""
    return not bool((np.abs(got - wanted) > 0.1).any())


def _rounded(operation: Operation, values: Array) -> Float64Array:
    if operation.signature.result.is_integer:
        return to_float64(values)
    return to_float64(quantize(to_float64(values), operation.signature.result))
