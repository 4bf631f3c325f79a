"""Each planted bug of the host is killed by the check that is meant for its kind; bugs at rare
values, calls, threads, addresses and sizes are right on ordinary inputs."""

from __future__ import annotations

import os
import random
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import Array
from gemmetry.selftest import emulator
from gemmetry.selftest.emulator import kernel_of
from gemmetry.selftest.provider import Carrier, Mutant, MutantProvider, all_mutants
from gemmetry.verification.checks import CheckOutcome, calls
from gemmetry.verification.checks import shapes as long_axes
from gemmetry.verification.context import Context, run_check
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import CHECKS

WORKSPACE = Workspace(generated=Path("unused"))
RUN = {one.name: partial(run_check, check=one.run) for one in CHECKS}

TIMED = (
    "thread_writes_later", "work_left_to_thread", "cache_in_bursts", "cache_in_late_bursts",
    "fixed_wait_for_partner", "thread_writes_much_later",
)  # fmt: skip
MUTANTS = [
    item
    for item in all_mutants()
    if item.carrier is Carrier.HOST and item.is_bug and not item.is_unseen
    if item.killed_by and item.killed_by[0] in RUN and item.slug not in TIMED
]
"""All but those that end without a check, or depend on time; the self-test kills these."""

DETAILS = Path(__file__).parent.parent / "data" / "kill_details.txt"
"""What the check says of each, with ``#`` for numbers; ``GEMMETRY_WRITE_GOLDEN=1`` writes it again,
and what has varied stays :data:`CHANCE`."""

CHANCE = "left to chance"
NUMBER = re.compile(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?")

RARE = range(72, 86)
"""Bugs of rare values, calls, threads, addresses, sizes, processors and moments."""


@pytest.fixture(autouse=True)
def in_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races that strike by chance strike in the same way, however busy the machine is."""
    for module in (calls, long_axes):
        monkeypatch.setattr(module, "LONGEST_S", {False: 600.0, True: 600.0})
    monkeypatch.setattr(emulator.random, "Random", partial(random.Random, 7))


@cache
def _details() -> dict[str, str]:
    lines = DETAILS.read_text("utf-8").splitlines() if DETAILS.exists() else []
    return dict(line.split(" | ", 1) for line in lines)


@cache
def _given(operation: Operation) -> tuple[tuple[Array, ...], Reference]:
    """Inputs and their reference."""
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    return inputs, compute_reference(operation, inputs)


def context_of(item: Mutant) -> Context:
    operation = parse_operation(item.operation)
    provider = MutantProvider()
    dispatch = Dispatch(operation, item.as_configuration(), "mutant", Target(TargetKind.CPU))
    companions = CompanionBuilder(provider, WORKSPACE).companions(dispatch, item.level)
    launcher = Launcher(provider.build(dispatch, WORKSPACE), operation, item.tile)
    thorough = item.level == "paranoid"
    return Context(launcher, operation, *_given(operation), 42, companions, thorough=thorough)


@pytest.mark.parametrize("item", [pytest.param(one, id=one.slug) for one in MUTANTS])
def test_a_bug_is_killed_by_its_check(item: Mutant) -> None:
    if item.number == 82 and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("only one processor is allowed here anyway")
    context = context_of(item)
    passes = []
    is_right, agrees = not context.first_errors.bad_count, context.second.same_as(context.first)
    if item.number in RARE:  # It is hidden at first.
        assert is_right and agrees
        passes += ["integers"]
    if "results_stay" in item.killed_by:
        passes += ["second_launch", "every_call", "follows_changes", "unaligned_buffers"]
    for name in passes:
        assert RUN[name](context).outcome is CheckOutcome.PASSED
    if "results_stay" in item.killed_by:
        for _ in range(24):
            context.launcher.launch(context.main, sentinel=0)
    names = [name for name in item.killed_by if name in RUN]
    found = next(one for name in names if (one := RUN[name](context)).is_failure)
    detail = f"{found.name}: {NUMBER.sub('#', found.detail)}"
    known = _details().get(item.configuration, detail)
    if os.environ.get("GEMMETRY_WRITE_GOLDEN"):
        _details()[item.configuration] = detail if known == detail else CHANCE
        lines = "".join(f"{name} | {line}\n" for name, line in _details().items())
        DETAILS.write_text(lines, "utf-8")
    else:
        assert item.configuration in _details()
        assert known in (detail, CHANCE)


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
