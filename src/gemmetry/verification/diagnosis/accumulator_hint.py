"""Determines whether a wrong kernel would be correct for an operation with a narrower
accumulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gemmetry.domain.contracts import Executable
from gemmetry.domain.dtypes import BF16, F16
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Verification
from gemmetry.domain.record import Verdict
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Array
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify

_CLASSES = ("fp16-accumulated", "bf16-accumulated")
"""Accuracy classes whose errors a 16-bit accumulator causes; smaller errors have another cause, and
no accumulator explains larger ones."""


def with_accumulator_hint(
    verdict: Verdict,
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference | None,
    companions: Companions | None,
    *,
    level: str,
    seed: int,
) -> Verdict:
    """`verdict`, whose reason names the option ``--accumulator`` where that option makes the kernel
    correct.

    A kernel that keeps its sums in bf16 or f16 is wrong for an operation that accumulates in f32,
    and correct for one that accumulates in that format. The bounds of such sums are so wide that
    many bugs stay within them, so nothing is concluded from the errors alone: the same
    configuration is built for the operation with the narrower accumulator and verified at the same
    `level`, and the option is named only if it passes.

    Args:
        inputs, reference: of `operation`; they are the same whatever the accumulator.
        companions: builds other operations; None: nothing is tried.

    Raises:
        DeviceLostError: the device was lost during the attempt.
    """
    is_tried = verdict.status is Verification.FAILED and verdict.accuracy_class in _CLASSES
    if not is_tried or companions is None:
        return verdict
    for narrow in _narrower(operation):
        if _is_right(narrow, inputs, reference, companions, level, seed):
            accumulator = narrow.signature.accumulator
            hint = f"it is correct as a kernel that accumulates in {accumulator}: --accumulator"
            return replace(verdict, reason=f"{verdict.reason}; {hint} {accumulator}")
    return verdict


def _narrower(operation: Operation) -> Iterator[Operation]:
    """`operation` with each 16-bit format among its tensors as the accumulator, where that is
    narrower than its own."""
    s = operation.signature
    for dtype in dict.fromkeys((s.result, s.lhs, s.rhs)):
        if dtype in (F16, BF16) and dtype.significand_bits < s.accumulator.significand_bits:
            yield Operation(replace(s, accumulator=dtype), operation.shape)


def _is_right(
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference | None,
    companions: Companions,
    level: str,
    seed: int,
) -> bool:
    executable: Executable | None = None
    try:
        executable = companions.build(operation)
        if executable is None:
            return False
        found = verify(
            executable,
            operation,
            inputs,
            reference,
            level=level,
            seed=seed,
            companions=replace(companions, known={}),
        )
    except DispatchError:
        return False
    finally:
        if executable is not None:
            executable.close()
    return found.status in (Verification.PASSED, Verification.WARNED)
