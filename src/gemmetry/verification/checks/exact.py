"""Checks on inputs for which every bit of the result is known."""

from __future__ import annotations

import math
import os
from functools import partial

import numpy as np

from gemmetry.domain.operation import Operation, Scaling
from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import Matmul, to_logical
from gemmetry.verification.checks.results import (
    CheckResult,
    failed,
    not_applicable,
    passed,
    warned,
)
from gemmetry.verification.context import INTEGERS, Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import factors as factor_inputs
from gemmetry.verification.inputs import selections
from gemmetry.verification.inputs.exact import LADDER, ExactCase, ExactInputs

UNKNOWN_SEED = int.from_bytes(os.urandom(4), "little") >> 1
"""The seed of one pair of inputs in this process."""

_IN_PLACE = ("selects_lhs", "selects_rhs")


def check_integers(context: Context) -> CheckResult:
    """Products of small integers, whose sums are exact in the promised accumulator, in new buffers
    while the old ones are alive. On failure, reports up to which magnitude integers are exact."""
    name = INTEGERS
    run = context.exact(name, exact_inputs.integers)
    if run is None:
        return _not_exact(name, context)
    result = context.verdict_of_exact(name, run)
    if not result.is_failure or context.operation.signature.lhs.is_integer:
        return result
    if run.launch.same_as(context.first):
        return result
    largest = max((q for q in LADDER if _rung(context, q) is True), default=0)
    if not largest:
        return result
    bits = math.floor(math.log2(context.operation.matmul_shape.k * largest**2))
    hint = f"exact up to ±{largest}, so sums of about {bits} bits are still exact"
    return failed(name, f"{result.detail}; {hint}", result.first_bad)


def check_unknown_seed(context: Context) -> CheckResult:
    """Inputs of a seed that is drawn when the process starts, so that no kernel can be made for
    them; the verdict names the seed, by which ``--seed`` repeats them."""
    name = "unknown_seed"
    note = f"the inputs of --seed {UNKNOWN_SEED}"

    def make(operation: Operation, _: int, matmul: Matmul, rounds_once: bool) -> ExactCase | None:
        return exact_inputs.integers(operation, UNKNOWN_SEED, matmul, rounds_once)

    run = context.exact(name, make)
    if run is not None:
        result = context.verdict_of_exact(name, run)
    else:
        operation, launcher = context.operation, context.launcher
        inputs = make_inputs(operation, distribution="offset_uniform", seed=UNKNOWN_SEED)
        launch = launcher.launch(context.put(inputs), sentinel=launcher.sentinels[0])
        result = context.judge_by_bound(name, launch, context.reference_of(inputs))
    if result.is_failure:
        return failed(name, f"{note}: {result.detail}", result.first_bad)
    return passed(name, note)


def check_integer_ladder(context: Context) -> CheckResult:
    """Further integers up to ±1, ±3 and ±16, as far as their sums are exact."""
    name = "integer_ladder"
    tried = 0
    for limit in LADDER:
        is_right = _rung(context, limit)
        if is_right is None:
            continue
        tried += 1
        if not is_right:
            run = context.exact(f"integers_{limit}", partial(exact_inputs.integers_up_to, limit))
            assert run is not None
            result = context.verdict_of_exact(name, run)
            return failed(name, f"with ±{limit}: {result.detail}", result.first_bad)
    return passed(name) if tried else _not_exact(name, context)


def check_selects_lhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of A with every significand bit used."""
    return _selects(context, "selects_lhs", selections.selects_lhs)


def check_selects_rhs(context: Context) -> CheckResult:
    """A result that must be a copy of elements of B with every significand bit used."""
    return _selects(context, "selects_rhs", selections.selects_rhs)


def check_fp8_promotion(context: Context) -> CheckResult:
    """Long fp8 sums of one sign, which are exact if 14-bit sums are promoted to the accumulator in
    time."""
    name = "fp8_promotion"
    signature = context.operation.signature
    if not (signature.lhs.is_fp8 and signature.rhs.is_fp8):
        return not_applicable(name, "the inputs are not fp8")
    if Trait.FP8_FAST_ACCUMULATION in context.declared:
        return not_applicable(name, "declared to keep fp8 sums in 14 bits")
    run = context.exact(name, exact_inputs.promoted)
    if run is None:
        return not_applicable(name, "no exact sums beyond 14 bits fit K and the formats")
    result = context.verdict_of_exact(name, run)
    if not result.is_failure or run.errors is None:
        return result
    why = "sums of more than 128 products lose bits, as in a 14-bit accumulator"
    return failed(name, f"{why}; {result.detail}", result.first_bad)


def check_scale_factors(context: Context) -> CheckResult:
    """Scale factors of either sign that use every bit of f32; some of them, and some of their
    products, are outside the range of f16."""
    name = "scale_factors"
    if context.operation.signature.scaling is Scaling.NONE:
        return not_applicable(name, "the operation has no scale factors")
    run = context.exact(name, factor_inputs.scaled)
    return _not_exact(name, context) if run is None else context.verdict_of_exact(name, run)


def check_addend_cancels(context: Context) -> CheckResult:
    """The remainder is correct where C cancels the product: alpha·A·B is not rounded to the
    result's format before beta·C is added.

    If the whole result equals that of two kernels, the second of which adds C to the stored result
    of the first, this is a warning, as cuBLAS does so in bf16 (13.0 on an H200). If only a part of
    it does, it is a failure.
    """
    name = "addend_cancels"
    signature = context.operation.signature
    if signature.beta == 0:
        return not_applicable(name, "the operation adds no C")
    if Trait.ROUNDS_BEFORE_ADDING in context.declared:
        return not_applicable(name, "declared to round the product before C is added")
    run = context.exact(name, factor_inputs.cancelled)
    if run is None:
        return not_applicable(name, "C is not the last term, or its format holds every product")
    result = context.verdict_of_exact(name, run)
    if not result.is_failure or context.first_errors.bad_count:
        return result
    why = "the product is rounded to the result's format before C is added"
    late = factor_inputs.added_late(context.operation, run.case.inputs, context.matmul)
    if np.array_equal(to_logical(run.launch.output, context.operation.output), late):
        return warned(
            name,
            f"{why} (declare {Trait.ROUNDS_BEFORE_ADDING} if this is intended, "
            "as with two kernels)",
        )
    return failed(name, f"{why}, in a part of the result; {result.detail}", result.first_bad)


def check_in_place_change(context: Context) -> CheckResult:
    """A launch uses the current contents of inputs that were changed in place.

    The selections are launched in buffers that held other inputs before. A wrong launch is repeated
    in new buffers: if it is correct there, the kernel has remembered something by pointer.
    """
    name = "in_place_change"
    makers = dict(zip(_IN_PLACE, (selections.selects_lhs, selections.selects_rhs), strict=True))
    runs = {key: context.exact(key, make) for key, make in makers.items()}
    if all(run is None for run in runs.values()):
        return _negated_in_place(name, context)
    for key, run in runs.items():
        if run is None or run.is_right:
            continue
        fresh = context.launcher.place(run.case.inputs, keep_copies=False)
        if context.run_exact(key, run.case, fresh).is_right:
            return failed(
                name,
                "inputs changed in place give a wrong result, but a correct one in new buffers: "
                "something is remembered by pointer",
                "" if run.errors is None else run.errors.first_bad,
            )
    return passed(name)


def _negated_in_place(name: str, context: Context) -> CheckResult:
    """For operations without exact inputs: A is negated in place, and the result compared with that
    in new buffers."""
    inputs = tuple(
        np.negative(array) if spec.role == "lhs" else array
        for spec, array in zip(context.operation.inputs, context.inputs, strict=True)
    )
    launcher, sentinel = context.launcher, context.launcher.sentinels[0]
    for contents in (context.inputs, inputs):
        placed = context.put(contents)
        changed = launcher.launch(placed, sentinel=sentinel, check_inputs=False)
    if changed.same_as(context.first) and context.first.output.astype(bool).any():
        return failed(name, "the result for the contents before the change was returned again")
    return passed(name)


def _selects(context: Context, name: str, make: ExactInputs) -> CheckResult:
    run = context.exact(name, make)
    return _not_exact(name, context) if run is None else context.verdict_of_exact(name, run)


def _rung(context: Context, limit: int) -> bool | None:
    """Whether integers up to ±`limit` give exact results; None where they cannot."""
    if context.operation.signature.lhs.is_integer or limit >= exact_integer_limit(
        context.operation
    ):
        return None
    run = context.exact(f"integers_{limit}", partial(exact_inputs.integers_up_to, limit))
    return None if run is None else run.is_right


def _not_exact(name: str, context: Context) -> CheckResult:
    operation = context.operation
    bits = operation.signature.accumulator
    return not_applicable(name, f"sums of K={operation.matmul_shape.k} round in {bits}")
