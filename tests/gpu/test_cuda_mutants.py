"""Mutants in CUDA C++ on a GPU: the right ones are right, failed launches are reported, and
bugs show where they are expected to.

Some bugs end the process's use of the GPU: a hang, a failed wait. Their kernels are left to
``gemmetry verify self-test``, which runs each in a process that it can kill.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.domain.errors import LaunchError, UnsupportedError, Verification
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.selftest.provider import HOPPER_SOURCE, PROVIDER, Carrier, Mutant, all_mutants
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify

MUTANTS = [item for item in all_mutants() if item.carrier is Carrier.CUDA]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]

Check = Callable[..., Any]
RIGHT = [item for item in MUTANTS if not item.is_bug]
ENDS_THE_PROCESS = {"launch_error", "timeout", "after_timing"}
"""And what shows while it is timed, which ``test_renewal.py`` does."""
BUGS = [item for item in MUTANTS if item.is_bug and not ENDS_THE_PROCESS & set(item.killed_by)]
SHAPES = ((1, 4, 8), (63, 60, 72), (65, 68, 56), (300, 132, 1032), (1024, 516, 200))


def _name(item: Mutant) -> str:
    return item.configuration


NEEDS_THE_GPU = {"spoiled_scratch", "unordered_work", "rare_launches"}
"""Checks that find less next to other processes: these leave contents in shared memory, take
the time in which one stream runs ahead of another, and make fewer launches if each takes long."""
RACES = {19, 20, 35}
"""Bugs that show only if copies or blocks meet in time, so that any check may be the one that
fails."""


def _alone_if_needed(item: Mutant) -> ParameterSet:
    is_needed = NEEDS_THE_GPU & set(item.killed_by) or item.number in RACES
    marks = [pytest.mark.alone] if is_needed else []
    return pytest.param(item, id=_name(item), marks=marks)


def _skip_older_than_hopper(item: Mutant, gpu: Target) -> None:
    if item.recipe.source == HOPPER_SOURCE and gpu.architecture != "sm_90":
        pytest.skip(f"{item.configuration} is for sm_90, this is {gpu}")


@pytest.mark.parametrize("item", RIGHT, ids=_name)
def test_right_kernels_are_right(check: Check, gpu: Target, item: Mutant) -> None:
    _skip_older_than_hopper(item, gpu)
    types = item.operation.split("_", 2)[2]
    for operation in (item.operation, *(f"matmul_{m}x{n}x{k}_{types}" for m, n, k in SHAPES)):
        executable = check(PROVIDER(), operation, item.configuration, tier="warn")
        facts = executable.facts
        assert facts.registers and facts.shared_memory_bytes and facts.spill_bytes is not None
        is_hopper = item.recipe.source == HOPPER_SOURCE
        assert facts.matrix_instruction == ("wgmma" if is_hopper else "none")
        assert facts.declared == item.declared


@pytest.mark.parametrize("item", [_alone_if_needed(item) for item in BUGS])
def test_bugs_are_caught_where_expected(tmp_path: Path, gpu: Target, item: Mutant) -> None:
    _skip_older_than_hopper(item, gpu)
    operation = parse_operation(item.operation)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
    verdict = verify(
        _build(item, gpu, operation, tmp_path),
        operation,
        inputs,
        compute_reference(operation, inputs),
        companions=Companions(
            build=lambda other: _build_if_supported(item, gpu, other, tmp_path), tile=item.tile
        ),
    )
    assert verdict.status is Verification.FAILED
    failed = {check for check, text in verdict.checks.items() if text.startswith("failed")}
    assert failed & set(item.killed_by) or item.number in RACES, verdict.checks


@pytest.fixture
def ring(tmp_path: Path, gpu: Target) -> Iterator[tuple[Any, Operation]]:
    """The right kernel that requires aligned buffers, at a small shape."""
    item = next(item for item in RIGHT if item.recipe.source == HOPPER_SOURCE)
    _skip_older_than_hopper(item, gpu)
    operation = parse_operation("matmul_128x64x64_bf16t_bf16n_f32t")
    executable = _build(item, gpu, operation, tmp_path)
    yield executable, operation
    executable.close()


def test_unaligned_buffers_are_refused(ring: tuple[Any, Operation]) -> None:
    executable, operation = ring
    device = executable.device
    inputs = [device.allocate(spec) for spec in operation.inputs]
    output = device.allocate(operation.output)
    for buffer in inputs:
        device.fill_bytes(buffer, 0)
    executable.run(inputs, output)
    device.synchronize()
    with pytest.raises(LaunchError, match="aligned to 16 bytes"):
        executable.run([inputs[0].flatten()[1:], inputs[1]], output)


def _build(item: Mutant, gpu: Target, operation: Operation, folder: Path) -> Any:
    dispatch = Dispatch(operation, item.as_configuration(), "mutant", gpu)
    return PROVIDER().build(dispatch, Workspace(generated=folder))


def _build_if_supported(item: Mutant, gpu: Target, operation: Operation, folder: Path) -> Any:
    try:
        return _build(item, gpu, operation, folder)
    except UnsupportedError:
        return None
