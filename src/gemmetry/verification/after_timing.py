"""Verifies the results of timed launches, on unchanged and on changed inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.changes import (
    InputChange,
    changed_inputs,
    negates_result,
    negative,
    part_with_lines,
    take_lines,
    with_lines,
)
from gemmetry.numerics.references import (
    Reference,
    compute_reference,
    reference_lines,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import (
    Array,
    as_bits,
    numpy_dtype,
    quantize,
    same_bytes,
    to_float64,
)
from gemmetry.verification.checks.results import CheckResult, failed, passed, warned
from gemmetry.verification.comparison import compare
from gemmetry.verification.diagnosis.guess import guess_bug
from gemmetry.verification.references.freivalds import freivalds

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
        is_repeatable: launches on the same inputs gave the same bits; others are a finding then.

    Returns:
        The check ``after_timing``; :func:`gemmetry.verification.protocol.with_check` adds it to the
        verdict.
    """
    spec = operation.output
    judge = _Judge(operation, inputs, find_reference, declared, seed, right)
    differing: list[str] = []
    for label, output, change in outputs:
        if output.dtype != numpy_dtype(spec.dtype) or output.shape != spec.storage_shape:
            return failed(NAME, f"{label}: it is {output.dtype} of shape {output.shape}")
        problem, first_bad = judge.problem(output, change)
        if problem:
            since = "" if change is None else f", with {change} before the launch"
            return failed(NAME, f"{label}{since}: {problem}", first_bad)
        if is_repeatable and right and change is None and not judge.was_known:
            differing.append(label)
    if differing and not set(declared) & {Trait.NONDETERMINISTIC, Trait.STOCHASTIC_ROUNDING}:
        return warned(
            NAME,
            f"{differing[0]} is within its bound, but differs in its bits from the result that was "
            "verified, although launches agreed until they were timed",
        )
    return passed(NAME)


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
        """What is wrong with `output`, and its first wrong element; "" if it is correct."""
        self.was_known = self._is_known(output, change)
        if self.was_known:
            return "", ""
        if self.reference is None:
            now = self.inputs
            if change is not None:
                now = changed_inputs(self.operation, self.inputs, change)
            found = freivalds(self.operation, now, output, seed=self.seed, declared=self.declared)
            return ("" if found.is_right else found.detail), found.statistics.first_bad
        if change is None:
            found_here = self._compared(output, self.reference)
            self.right = self.right if found_here[0] else output
            return found_here
        problem = self._lines_problem(output, self.reference, change)
        if problem:
            return problem, ""
        return self._rest_problem(output, self.reference, change)

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
        return f"{errors.bad_count} of {errors.elements} elements are wrong ({guess})", (
            errors.first_bad
        )

    def _lines_problem(self, output: Array, reference: Reference, change: InputChange) -> str:
        """Compare the lines that the change affects."""
        part, taken = part_with_lines(self.operation, self.inputs, [change])
        logical = to_logical(output, self.operation.output)
        lines = to_storage(take_lines(self.operation, logical, change), part.output)
        wanted = replace(compute_reference(part, taken), sizes=reference.sizes)
        errors = compare(part, lines, wanted, declared=self.declared)
        if errors.bad is None:
            return ""
        before = reference_lines(reference, lambda array: take_lines(self.operation, array, change))
        if compare(part, lines, before, declared=self.declared).bad is None:
            return (
                "it is the result for the previous inputs: launches did not compute, or returned "
                "a kept result"
            )
        return (
            f"{errors.bad_count} of {errors.elements} elements of that line are wrong "
            f"(its first: {errors.first_bad})"
        )

    def _rest_problem(
        self, output: Array, reference: Reference, change: InputChange
    ) -> tuple[str, str]:
        """Compare everything else: equal to a verified output, or within the bound."""
        operation, spec = self.operation, self.operation.output
        logical = to_logical(output, spec)
        if self.right is not None:
            known = take_lines(operation, to_logical(self.right, spec), change)
            if same_bytes(
                to_storage(with_lines(operation, logical, change, known), spec), self.right
            ):
                return "", ""
        known = take_lines(operation, reference.value, change)
        if not spec.dtype.is_integer:
            known = quantize(to_float64(known), spec.dtype)
        filled = with_lines(operation, logical, change, known.astype(output.dtype))
        return self._compared(to_storage(filled, spec), reference)
