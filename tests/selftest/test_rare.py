"""Kernels that are wrong at rare values, calls, threads, addresses and sizes: right on ordinary
inputs, and killed by the check that is meant for their kind."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.selftest.catalogue import Mutant, all_mutants
from gemmetry.selftest.emulator import kernel_of
from gemmetry.selftest.provider import MutantProvider
from gemmetry.verification.checks import CheckOutcome, calls
from gemmetry.verification.checks import shapes as long_axes
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import CHECKS

WORKSPACE = Workspace(generated=Path("unused"))
MODULES = calls, long_axes
RUN = {check.name: check.run for check in CHECKS}

REASONS = {
    "factors_in_bf16": "scale: the result is",
    "small_factors_clamped": "scale: the result is",
    "rows_scaled_in_f16": "overflow",
    "first_tiles_stored_before": "before C is added, in a part of the result",
    "last_tiles_stored_before": "before C is added, in a part of the result",
    "close_by_norm": "here all of A by its last bits, holds the result for an earlier call",
    "close_by_half": "here all of A by its last bits, holds the result for an earlier call",
    "close_but_for_last_bits": "here all of A by its last bits, holds the result for an earlier",
    "weights_after_some_calls": "call 50 of",
    "ring_of_operands": "call 81 of",
    "launch_lost_at_wrap": "call 64 of",
    "workspace_of_thread": "another thread than the one that built it: raised AttributeError",
    "mode_of_thread": "something belongs to a thread: ",
    "epilogue_of_thread": "something belongs to a thread: ",
    "reads_aligned_b": "the kernel relies on an alignment",
    "skips_unaligned_head": "wrong only in row 0",
    "stores_aligned": "the kernel relies on an alignment",
    "relu_by_magnitude": "minus infinity becomes NaN after relu",
    "relu_by_difference": "minus infinity becomes NaN after relu",
    "steps_in_eleven_bits": "matmul_3x8x65542_",
    "products_in_signed_16": "matmul_3x8x65542_",
    "rows_of_b_in_16_bits": "matmul_3x8x65542_",
    "columns_past_1024": "matmul_3x1029x5_",
    "column_tiles_in_four_bits": "matmul_3x1029x5_",
    "rows_in_16_bits": "matmul_65541x3x5_",
}
"""Slug -> what the reason contains."""

MUTANTS = [item for item in all_mutants() if item.slug in REASONS and not item.is_unseen]


@pytest.fixture(autouse=True)
def without_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    for module in MODULES:
        monkeypatch.setattr(module, "LONGEST_S", {False: 600.0, True: 600.0})


def context_of(item: Mutant) -> Context:
    operation = parse_operation(item.operation)
    provider = MutantProvider()
    dispatch = Dispatch(operation, item.as_configuration(), "mutant", Target(TargetKind.CPU))
    companions = CompanionBuilder(provider, WORKSPACE).companions(dispatch, item.level)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    reference = compute_reference(operation, inputs)
    launcher = Launcher(provider.build(dispatch, WORKSPACE), operation, item.tile)
    thorough = item.level == "paranoid"
    return Context(launcher, operation, inputs, reference, 42, companions, thorough=thorough)


@pytest.mark.parametrize("item", [pytest.param(one, id=one.slug) for one in MUTANTS])
def test_a_rare_bug_is_hidden_from_values_and_killed_for_what_it_is(item: Mutant) -> None:
    context = context_of(item)
    assert context.first_errors.bad_count == 0
    assert RUN["integers"](context).outcome is CheckOutcome.PASSED
    (name,) = item.killed_by
    result = RUN[name](context)
    assert result.is_failure
    assert REASONS[item.slug] in result.detail


def test_a_closeness_of_inputs_is_what_decides() -> None:
    """A kernel that keeps its last result computes where inputs differ by more."""
    (item,) = (one for one in MUTANTS if one.slug == "close_by_norm")
    operation = parse_operation(item.operation)
    kernel = kernel_of(item)(operation, item.tile)
    draw = partial(np.random.default_rng(3).uniform, -1, 1, (64, 64))
    a = np.asarray(np.random.default_rng(2).uniform(-1, 1, (128, 64)), np.float32)
    b, output = np.asarray(draw(), np.float32), np.zeros((128, 64), np.float32)
    first = kernel.launch([a, b], output).copy()
    assert np.allclose(first, a @ b, atol=1e-4)
    assert np.array_equal(kernel.launch([a * np.float32(1 + 1e-6), b], output), first)
    changed = kernel.launch([a * np.float32(1.001), b], output)
    assert not np.array_equal(changed, first)
