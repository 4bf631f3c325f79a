"""Checks on inputs for which every bit of the result is known.

Checks of scale: powers of two along K, subnormal numbers, and results beyond the format.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gemmetry.domain.operation import Operation, Scaling
from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import Matmul, to_logical
from gemmetry.numerics.storage import Array, same_bytes
from gemmetry.verification.checks import (
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
    property_of,
    warned,
)
from gemmetry.verification.checks import memory as values
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import scaled as factor_inputs
from gemmetry.verification.inputs import special as special_inputs
from gemmetry.verification.inputs.exact import LADDER, ExactCase, ExactInputs
from gemmetry.verification.inputs.scaled import HONEST_SPAN, overflowing, scaled_along_k, subnormal
from gemmetry.verification.inputs.special import objection
from gemmetry.verification.launching import Launch

UNKNOWN_SEED = int.from_bytes(os.urandom(4), "little") >> 1
"""The seed of one pair of inputs in this process."""


def check_integers(context: Context) -> CheckResult:
    """Products of small integers, whose sums are exact in the promised accumulator, in new buffers
    while the old ones are alive. On failure, reports up to which magnitude integers are exact."""
    run = context.exact(INTEGERS, exact_inputs.integers)
    if run is None:
        return _not_exact(context)
    result = context.verdict_of_exact(run)
    if not result.is_failure or context.operation.signature.lhs.is_integer:
        return result
    if run.launch.same_as(context.first):
        return result
    rungs = {limit: _rung(context, limit) for limit in LADDER}
    largest = max((q for q, rung in rungs.items() if rung is not None and rung.is_right), default=0)
    if not largest:
        return result
    bits = math.floor(math.log2(context.operation.matmul_shape.k * largest**2))
    hint = f"exact up to ±{largest}, so sums of about {bits} bits are still exact"
    return failed(f"{result.detail}; {hint}", result.first_bad)


def check_unknown_seed(context: Context) -> CheckResult:
    """Inputs of a seed that is drawn when the process starts, so that no kernel can be made for
    them; the verdict names the seed, by which ``--seed`` repeats them."""
    note = f"the inputs of --seed {UNKNOWN_SEED}"

    def make(operation: Operation, _: int, matmul: Matmul, rounds_once: bool) -> ExactCase | None:
        return exact_inputs.integers(operation, UNKNOWN_SEED, matmul, rounds_once)

    run = context.exact("unknown_seed", make)
    if run is not None:
        result = context.verdict_of_exact(run)
    else:
        inputs = make_inputs(context.operation, distribution="offset_uniform", seed=UNKNOWN_SEED)
        launch = context.launch_on(inputs)
        result = context.judge_by_bound(launch, context.reference_of(inputs))
    return result.because(note, ": ") if result.is_failure else passed(note)


def check_integer_ladder(context: Context) -> CheckResult:
    """Further integers up to ±1, ±3 and ±16, as far as their sums are exact."""
    tried = 0
    for limit in LADDER:
        run = _rung(context, limit)
        if run is not None and not run.is_right:
            return context.verdict_of_exact(run).because(f"with ±{limit}", ": ")
        tried += run is not None
    return passed() if tried else _not_exact(context)


def check_selects_lhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of A with every significand bit used."""
    return _on_exact(context, "selects_lhs", factor_inputs.selects_lhs)


def check_selects_rhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of B with every significand bit used."""
    return _on_exact(context, "selects_rhs", factor_inputs.selects_rhs)


def check_fp8_promotion(context: Context) -> CheckResult:
    """Long fp8 sums of one sign, which are exact if 14-bit sums are promoted to the accumulator in
    time."""
    signature = context.operation.signature
    if not (signature.lhs.is_fp8 and signature.rhs.is_fp8):
        return not_applicable("the inputs are not fp8")
    if Trait.FP8_FAST_ACCUMULATION in context.declared:
        return not_applicable("declared to keep fp8 sums in 14 bits")
    run = context.exact("fp8_promotion", exact_inputs.promoted)
    if run is None:
        return not_applicable("no exact sums beyond 14 bits fit K and the formats")
    result = context.verdict_of_exact(run)
    if not result.is_failure or run.errors is None:
        return result
    return result.because("sums of more than 128 products lose bits, as in a 14-bit accumulator")


def check_scale_factors(context: Context) -> CheckResult:
    """Scale factors of either sign that use every bit of f32; some of them, and some of their
    products, are outside the range of f16."""
    if context.operation.signature.scaling is Scaling.NONE:
        return not_applicable("the operation has no scale factors")
    return _on_exact(context, "scale_factors", factor_inputs.scaled)


def check_addend_cancels(context: Context) -> CheckResult:
    """The remainder is correct where C cancels the product: alpha·A·B is not rounded to the
    result's format before beta·C is added.

    If the whole result equals that of two kernels, the second of which adds C to the stored result
    of the first, this is a warning, as cuBLAS does so in bf16 (13.0 on an H200). If only a part of
    it does, it is a failure.
    """
    signature = context.operation.signature
    if signature.beta == 0:
        return not_applicable("the operation adds no C")
    if Trait.ROUNDS_BEFORE_ADDING in context.declared:
        return not_applicable("declared to round the product before C is added")
    run = context.exact("addend_cancels", factor_inputs.cancelled)
    if run is None:
        return not_applicable("C is not the last term, or its format holds every product")
    result = context.verdict_of_exact(run)
    if not result.is_failure or context.first_errors.bad_count:
        return result
    why = "the product is rounded to the result's format before C is added"
    late = factor_inputs.added_late(context.operation, run.case.inputs, context.matmul)
    if np.array_equal(to_logical(run.launch.output, context.operation.output), late):
        how = f"declare {Trait.ROUNDS_BEFORE_ADDING} if this is intended, as with two kernels"
        return warned(f"{why} ({how})")
    return failed(f"{why}, in a part of the result; {result.detail}", result.first_bad)


def check_in_place_change(context: Context) -> CheckResult:
    """A launch uses the current contents of inputs that were changed in place.

    The selections are launched in buffers that held other inputs before. A wrong launch is repeated
    in new buffers: if it is correct there, the kernel has remembered something by pointer.
    """
    makers = {"selects_lhs": factor_inputs.selects_lhs, "selects_rhs": factor_inputs.selects_rhs}
    made = {key: context.exact(key, make) for key, make in makers.items()}
    runs = {key: run for key, run in made.items() if run is not None}
    if not runs:
        return _negated_in_place(context)
    for key, run in runs.items():
        if run.is_right:
            continue
        fresh = context.launcher.place(run.case.inputs, keep_copies=False)
        if context.run_exact(key, run.case, fresh).is_right:
            why = "inputs changed in place give a wrong result, but a correct one in new buffers"
            first_bad = "" if run.errors is None else run.errors.first_bad
            return failed(f"{why}: something is remembered by pointer", first_bad)
    return passed()


def _negated_in_place(context: Context) -> CheckResult:
    """For operations without exact inputs: A is negated in place, and the result compared with that
    in new buffers."""
    lhs, *others = context.inputs
    context.launch_on(context.inputs)
    changed = context.launch_on((np.negative(lhs), *others))
    if changed.same_as(context.first) and context.first.output.astype(bool).any():
        return failed("the result for the contents before the change was returned again")
    return passed()


def _on_exact(context: Context, name: str, make: ExactInputs) -> CheckResult:
    run = context.exact(name, make)
    return _not_exact(context) if run is None else context.verdict_of_exact(run)


def _rung(context: Context, limit: int) -> ExactRun | None:
    """The launch on integers up to ±`limit`; None where no further ones are exact."""
    operation = context.operation
    if operation.signature.lhs.is_integer or limit >= exact_integer_limit(operation):
        return None
    return context.exact(f"integers_{limit}", partial(exact_inputs.integers_up_to, limit))


def _not_exact(context: Context) -> CheckResult:
    operation = context.operation
    bits = operation.signature.accumulator
    return not_applicable(f"sums of K={operation.matmul_shape.k} round in {bits}")


_NO_ROOM = "the range of these formats is too small for such inputs"


def check_scaled_along_k(context: Context) -> CheckResult:
    """(A·D)·(D⁻¹·B) equals A·B, with D powers of two as far apart as the formats allow, up to
    2^±100: exactly on integers whose sums are exact, else within the bound."""
    name = "scaled_along_k"
    reason = objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(reason)
    base = context.exact(INTEGERS, exact_inputs.integers)
    if base is not None:
        case = _derived(context, name, _scaled_case)
        if case is None:
            return not_applicable(_NO_ROOM)
        run = context.run_exact(name, case)
        was_wrong = bool(context.first_errors.bad_count)
        result = context.verdict_of_exact(run, guess=was_wrong)
        return _explained(context, result, run.launch, base.case.inputs)
    inputs = scaled_along_k(context.operation, context.inputs)
    if inputs is None:
        return not_applicable(_NO_ROOM)
    launch = context.launch_on(inputs)
    if launch.same_as(context.first):
        return passed()
    result = context.judge_by_bound(launch, context.reference)
    return _explained(context, result, launch, context.inputs)


def _explained(
    context: Context, result: CheckResult, launch: Launch, unscaled: Sequence[Array]
) -> CheckResult:
    """A failure that mentions what is special about these inputs, where others gave a correct
    result; a property where scaling by the largest number, as kernels honestly do, explains it."""
    if not result.is_failure or context.first_errors.bad_count:
        return result
    evidence = context.evidence.get(context.check)
    if _is_of_scale(context, launch, unscaled):
        return property_of(
            f"numbers that differ by up to 2^{HONEST_SPAN} along K count (or as far as their "
            "format reaches), at either end of the range, but not all that the formats allow: they "
            "share a scale with the largest one, of a row, a block or a tensor"
        )
    if evidence is not None:
        context.evidence[context.check] = evidence
    why = (
        "columns of A times powers of two and rows of B divided by them change no product, but "
        "the result is wrong: numbers share a scale (of a block or row), have a fixed point or a "
        "narrower range, or are cut off at an epsilon"
    )
    return result.because(why)


def _is_of_scale(context: Context, wrong: Launch, unscaled: Sequence[Array]) -> bool:
    """Whether the result of `wrong` has the errors of honest scaling, and no others: the unscaled
    inputs are computed exactly, the result is outside its bound and the same when launched again,
    and results are within their bounds if numbers differ by :data:`HONEST_SPAN` only, at both ends
    of the range, which no threshold, fixed point or narrower range allows."""
    base = context.exact(INTEGERS, exact_inputs.integers)
    if base is not None and not base.is_right:
        return False
    reference = context.reference
    if unscaled is not context.inputs:
        reference = context.reference_of(unscaled)

    def is_wrong(launch: Launch) -> bool:
        return context.judge_by_bound(launch, reference).is_failure

    output = wrong.output
    again = context.launch_on(wrong.inputs)
    if not is_wrong(again) or not same_bytes(output, again.output):
        return False
    narrow = [scaled_along_k(context.operation, unscaled, end=end) for end in (0, 1)]
    return not any(one is None or is_wrong(context.launch_on(one)) for one in narrow)


def check_subnormals(context: Context) -> CheckResult:
    """Inputs below the smallest normal number of a 16- or 8-bit format are not flushed to zero."""
    return _special(context, "subnormals", subnormal, special_inputs.subnormals)


def check_overflow(context: Context) -> CheckResult:
    """Rows that overflow are infinite with the correct sign, and the rows between them are
    finite."""
    return _special(context, "overflow", overflowing, special_inputs.overflow)


def _special(
    context: Context,
    name: str,
    make: Callable[[Operation, ExactCase], ExactCase | None],
    other: Callable[[Operation, int], tuple[Array, ...] | None],
) -> CheckResult:
    """Check on exact inputs, which need no further product; thorough checks also try others."""
    reason = objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(reason)
    result = not_applicable(_NO_ROOM)
    if context.case(INTEGERS, exact_inputs.integers) is not None:
        case = _derived(context, name, make)
        if case is not None:
            result = context.verdict_of_exact(context.run_exact(name, case))
    if result.is_failure or not context.thorough:
        return result
    found = values.judge_special(context, name, other)
    return found if found.is_failure or result.outcome is not CheckOutcome.PASSED else result


def _scaled_case(operation: Operation, case: ExactCase) -> ExactCase | None:
    inputs = scaled_along_k(operation, case.inputs)
    return None if inputs is None else replace(case, inputs=inputs)


def _derived(
    context: Context, name: str, make: Callable[[Operation, ExactCase], ExactCase | None]
) -> ExactCase | None:
    """The case that `make` derives from the exact integers; kept for the next dispatch of the
    operation."""
    base = context.case(INTEGERS, exact_inputs.integers)
    assert base is not None
    return context.case(name, lambda operation, *_: make(operation, base))
