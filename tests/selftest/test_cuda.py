"""Every mutant in CUDA C++ compiles without a GPU, and differs from the right kernel."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnsupportedError
from gemmetry.selftest.provider import HOPPER_SOURCE, Carrier, all_mutants

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from gemmetry.selftest import cuda as cuda_kernels

MUTANTS = [item for item in all_mutants() if item.carrier is Carrier.CUDA]
H200 = Target(TargetKind.CUDA, "sm_90", 0)


def _dispatch(item, target: Target = H200, operation: str = "") -> Dispatch:
    shape = parse_operation(operation or item.operation)
    return Dispatch(shape, item.as_configuration(), "mutant", target)


@pytest.mark.parametrize("item", MUTANTS, ids=lambda item: item.configuration)
def test_it_compiles_and_a_bug_in_the_source_changes_the_code(item) -> None:
    architecture = cuda_kernels.code_architecture(item.recipe, "sm_90")
    cubin = cuda_kernels.compile_item(item, architecture)
    spills = re.findall(r"(\d+) bytes spill stores", cubin.log)
    assert all(int(count) <= 16 for count in spills)
    assert "error" not in cubin.log and "warning" not in cubin.log
    assert "C75" not in cubin.log  # ptxas added no wait of its own to matrix instructions
    if item.is_bug and not item.recipe.in_launch:
        right = cuda_kernels.compile_item(replace(item, is_bug=False), architecture)
        assert right.code != cubin.code


SM_80 = Target(TargetKind.CUDA, "sm_80", 0)


def test_hopper_kernels_say_what_they_need() -> None:
    item = next(item for item in MUTANTS if item.recipe.source == HOPPER_SOURCE)
    assert cuda_kernels.why_unsupported(item.recipe, _dispatch(item)) is None
    assert "sm_90" in (cuda_kernels.why_unsupported(item.recipe, _dispatch(item, SM_80)) or "")
    for shape in ("64x64x65", "64x65x64"):
        with pytest.raises(UnsupportedError, match="16 bytes"):
            cuda_kernels.build(item, _dispatch(item, H200, f"matmul_{shape}_bf16t_bf16n_f32t"))


def test_other_kernels_run_on_any_shape_and_device() -> None:
    dispatch = _dispatch(MUTANTS[0], SM_80, "matmul_3x5x7_f32t_f32t_f32t")
    assert cuda_kernels.why_unsupported(MUTANTS[0].recipe, dispatch) is None
    assert cuda_kernels.code_architecture(MUTANTS[0].recipe, "sm_80") == "sm_80"
