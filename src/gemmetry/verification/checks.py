"""The checks of verification: each a small named unit that looks at what launches left behind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import cast

import numpy as np

from gemmetry.domain.contracts import Executable
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Matmul, Reference, compute_reference
from gemmetry.numerics.storage import Array, same_bytes, to_float64
from gemmetry.verification import exact_inputs
from gemmetry.verification.comparison import (
    ErrorStatistics,
    compare,
    compare_exactly,
    outside_bound,
)
from gemmetry.verification.diagnosis import guess_bug
from gemmetry.verification.exact_inputs import ExactCase, ExactInputs
from gemmetry.verification.launching import Launch, Launcher, sentinel_mask

HOST_PRODUCT_FLOPS = 1e10
"""Above this many FLOPs a check's own product is left to the device's float64, where it has one:
a desktop processor needs about 0.1 s for as many."""

CASE_CACHE_BYTES = 3 * 2**29
"""What is kept of exact inputs and their results, for the next dispatch of the same operation:
the three cases of an 8192³ bf16 product take 1.2e9 bytes."""

REPEATS = 20
"""Launches at level paranoid that must agree bit for bit."""


class CheckOutcome(StrEnum):
    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    outcome: CheckOutcome = CheckOutcome.PASSED
    detail: str = ""
    """Why, where it is not passed; one line."""
    first_bad: str = ""

    @property
    def text(self) -> str:
        """As it stands in ``Verdict.checks``: ``passed``, ``failed: why`` ..."""
        return f"{self.outcome}: {self.detail}" if self.detail else str(self.outcome)


@dataclass
class Context:
    """One verification: what checks look at. Launches happen when first asked for."""

    launcher: Launcher
    operation: Operation
    inputs: Sequence[Array]
    reference: Reference
    seed: int

    @property
    def executable(self) -> Executable:
        return self.launcher.executable

    @cached_property
    def first(self) -> Launch:
        """On the caller's inputs, with the first sentinel."""
        return self.launcher.launch(self.inputs, sentinel=self.launcher.sentinels[0])

    @cached_property
    def second(self) -> Launch:
        """The same inputs in new buffers, with the other sentinel."""
        return self.launcher.launch(self.inputs, sentinel=self.launcher.sentinels[1])

    @cached_property
    def first_errors(self) -> ErrorStatistics:
        return compare(self.operation, self.first.output, self.reference)

    @property
    def matmul(self) -> Matmul:
        """For the products that checks need themselves."""
        if self.operation.flops > HOST_PRODUCT_FLOPS:
            on_device = self.executable.device.float64_matmul()
            if on_device is not None:
                multiply = on_device
                return lambda a, b: multiply(to_float64(a), to_float64(b))
        return cast(Matmul, np.matmul)


class CaseCache:
    """The exact cases made last, up to :data:`CASE_CACHE_BYTES`."""

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[str, Operation, int], ExactCase | None] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, name: str, make: ExactInputs, operation: Operation, seed: int, matmul: Matmul
    ) -> ExactCase | None:
        key = (name, operation, seed)
        if key in self._cases:
            self._cases.move_to_end(key)
            return self._cases[key]
        case = make(operation, seed, matmul)
        self._cases[key] = case
        self._held_bytes += _case_bytes(case)
        while self._cases and self._held_bytes > CASE_CACHE_BYTES:
            self._held_bytes -= _case_bytes(self._cases.popitem(last=False)[1])
        return case


def _case_bytes(case: ExactCase | None) -> int:
    return 0 if case is None else case.nbytes


_CASES = CaseCache()

CheckFunction = Callable[[Context], CheckResult]


def passed(name: str) -> CheckResult:
    return CheckResult(name)


def failed(name: str, detail: str, first_bad: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.FAILED, detail, first_bad)


def warned(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.WARNED, detail)


def not_applicable(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.NOT_APPLICABLE, detail)


def check_form(context: Context) -> CheckResult:
    """The result has the right shape and dtype and is not one of the inputs."""
    name = "form"
    problem = context.launcher.form_problem(context.first.output)
    if problem:
        return failed(name, problem)
    if context.first.returned_input:
        return failed(name, f"the result is the buffer of the input {context.first.returned_input}")
    return passed(name)


def check_written(context: Context) -> CheckResult:
    """No element still holds the sentinel that the output was filled with."""
    name = "written"
    if not context.executable.writes_output:
        return not_applicable(name, "the provider allocates its own output")
    launch = context.first
    left = sentinel_mask(launch.output, launch.sentinel)
    if not left.any():
        return passed(name)
    # A right element may look like the sentinel (fp8 has 256 values), so it must be wrong too.
    count = outside_bound(context.operation, launch.output, context.reference, left)
    if count == 0:
        return passed(name)
    return failed(name, f"{count} of {left.size} elements were never written")


def check_inputs_unchanged(context: Context) -> CheckResult:
    """After the launch every input holds the bytes it held before."""
    name = "inputs_unchanged"
    changed = context.first.changed_inputs
    return failed(name, f"the launch changed {', '.join(changed)}") if changed else passed(name)


def check_red_zones(context: Context) -> CheckResult:
    """Nothing was written just before or after any buffer."""
    name = "red_zones"
    broken = context.first.broken_zones
    if broken is None:
        return not_applicable(name, "this device has no red zones around its buffers")
    if broken:
        return failed(name, f"the launch wrote outside the buffer of {', '.join(broken)}")
    return passed(name)


def check_values(context: Context) -> CheckResult:
    """Every element is within its error bound of the float64 (integers: exact) reference."""
    return _judge(
        "values", context, context.first.output, context.reference.value, context.first_errors
    )


def check_second_launch(context: Context) -> CheckResult:
    """A launch on new buffers, with another sentinel in the output, is right as well."""
    name = "second_launch"
    problem = context.launcher.form_problem(context.second.output)
    if problem:
        return failed(name, problem)
    if context.second.changed_inputs or context.second.broken_zones:
        return failed(name, "it wrote to its inputs or outside its buffers")
    if same_bytes(context.first.output, context.second.output):
        return passed(name)
    errors = compare(context.operation, context.second.output, context.reference)
    result = _judge(name, context, context.second.output, context.reference.value, errors)
    if result.outcome is CheckOutcome.FAILED and context.first_errors.bad is None:
        why = "the first launch was right: it adds to what the output held, or keeps state"
        return failed(name, f"{why}; {result.detail}", result.first_bad)
    return result


def check_repeat(context: Context) -> CheckResult:
    """Two launches on the same inputs agree bit for bit; where they do not, that is told."""
    name = "repeat"
    difference = _difference(context.first.output, context.second.output)
    return warned(name, difference) if difference else passed(name)


def check_integers(context: Context) -> CheckResult:
    """Products of small integers, whose sums are exact in the promised accumulator."""
    return _exact_check("integers", exact_inputs.integers, context)


def check_selects_lhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of A with every significand bit used."""
    return _exact_check("selects_lhs", exact_inputs.selects_lhs, context)


def check_selects_rhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of B with every significand bit used."""
    return _exact_check("selects_rhs", exact_inputs.selects_rhs, context)


def check_zero_mean(context: Context) -> CheckResult:
    """Normal inputs: products cancel, so small errors are not hidden by a large result."""
    name = "zero_mean"
    inputs = make_inputs(context.operation, distribution="normal", seed=context.seed + 1)
    matmul = context.matmul
    reference = compute_reference(
        context.operation, inputs, matmul=None if matmul is np.matmul else matmul
    )
    output = context.launcher.launch(inputs, sentinel=context.launcher.sentinels[0]).output
    errors = compare(context.operation, output, reference)
    return _judge(name, context, output, reference.value, errors)


def check_many_repeats(context: Context) -> CheckResult:
    """:data:`REPEATS` launches agree bit for bit."""
    name = "many_repeats"
    for _ in range(REPEATS):
        launch = context.launcher.launch(context.inputs, sentinel=context.launcher.sentinels[0])
        difference = _difference(context.first.output, launch.output)
        if difference:
            return warned(name, difference)
    return passed(name)


def _exact_check(name: str, make: ExactInputs, context: Context) -> CheckResult:
    operation = context.operation
    case = _CASES.get(name, make, operation, context.seed, context.matmul)
    if case is None:
        bits = operation.signature.accumulator
        return not_applicable(name, f"sums of K={operation.matmul_shape.k} round in {bits}")
    launch = context.launcher.launch(case.inputs, sentinel=context.launcher.sentinels[1])
    problem = context.launcher.form_problem(launch.output)
    if problem:
        return failed(name, problem)
    if case.reference is None:
        assert case.expected is not None
        expected = case.expected
        errors = compare_exactly(operation, launch.output, expected)
    else:
        expected = case.reference.value
        errors = compare(operation, launch.output, case.reference, exact_sums=True)
    return _judge(name, context, launch.output, expected, errors, only_failures=True)


def _judge(
    name: str,
    context: Context,
    output: Array,
    expected: Array,
    errors: ErrorStatistics,
    *,
    only_failures: bool = False,
) -> CheckResult:
    if errors.bad is not None:
        guess = guess_bug(context.operation, output, expected, errors.bad)
        share = f"{errors.bad_count} of {errors.elements} elements are wrong"
        return failed(name, f"{share} ({guess})", errors.first_bad)
    if errors.warned_count and not only_failures:
        return warned(
            name,
            f"{errors.warned_count} of {errors.elements} elements err more than usual, by up to "
            f"{errors.max_warn_ratio:.2g} times the expected bound",
        )
    return passed(name)


def _difference(first: Array, other: Array) -> str:
    if same_bytes(first, other):
        return ""
    if first.shape != other.shape or first.dtype != other.dtype:
        return "another launch gave another shape or dtype"
    count = int((to_float64(first) != to_float64(other)).sum())
    return f"not deterministic: {count} of {first.size} elements differ between launches"
