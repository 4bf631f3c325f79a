"""Tests of the rows of all kernels, and of how one is chosen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Pointer, Tiles
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import CudaKernel
from gemmetry.providers.kernels import __path__ as sources

HOPPER = parse_target("cuda-sm_90")
PROCESSORS = 132
SMALL = "matmul_256x256x256_bf16t_bf16n_bf16t"

each_kernel = pytest.mark.parametrize("kernel", catalogue.kernels(), ids=lambda one: one.name)


def test_rungs_and_keys_belong_to_one_kernel_each() -> None:
    found = catalogue.kernels()
    rungs = [kernel.rung for kernel in found if kernel.rung is not None]
    assert len(set(rungs)) == len(rungs)
    assert max(Counter(kernel.key for kernel in found).values()) == 1
    for kernel in found:
        assert "_" not in kernel.key
        assert kernel.rung is None or kernel.name.startswith(f"r{kernel.rung:02d}_")


@each_kernel
def test_names_of_configurations_lead_back_to_them(kernel: CudaKernel) -> None:
    for name in kernel.checked:
        operation = parse_operation(name)
        legal = kernel.legal(operation)
        assert legal, name
        assert kernel.refusal(operation) is None
        for one in legal:
            assert catalogue.kernel_of(one.name) is kernel
            again = kernel.configuration(one.name, operation)
            assert again == one and again.parameters == one.parameters
    assert kernel.configuration("nonsense", parse_operation(kernel.checked[0])) is None
    assert kernel.configuration(f"{kernel.key}_x9", parse_operation(kernel.checked[0])) is None


@each_kernel
def test_plans_name_sources_and_buffers_that_exist(kernel: CudaKernel) -> None:
    files = {
        str(path.relative_to(folder).with_suffix(""))
        for folder in map(Path, sources)
        for path in folder.rglob("*.cu")
    }
    for name in kernel.checked:
        operation = parse_operation(name)
        roles = {spec.role for spec in (*operation.inputs, operation.output)}
        for configuration in kernel.legal(operation):
            plan = kernel.plan(operation, configuration, PROCESSORS)
            assert plan.launches
            for launch in plan.launches:
                assert launch.compilation.source in files
                named = {one.buffer for one in launch.arguments if isinstance(one, Pointer | Tiles)}
                assert named <= roles | set(plan.workspaces)
                blocks, cluster = launch.grid.blocks, launch.grid.cluster
                assert not any(a % b for a, b in zip(blocks, cluster, strict=True))


def test_what_no_kernel_does_is_refused_with_the_reason() -> None:
    def reason(name: str, target: str = "cuda-sm_90") -> str | None:
        return catalogue.reason_against(parse_operation(name), parse_target(target))

    assert reason(SMALL) is None
    assert "Hopper (cuda-sm_90), not cuda-sm_80" in (reason(SMALL, "cuda-sm_80") or "")
    assert "Hopper (cuda-sm_90), not cpu" in (reason(SMALL, "cpu") or "")
    assert "not batch_matmul" in (reason("batch_matmul_2x64x64x64_bf16t_bf16n_bf16t") or "")
    assert reason("matmul_64x64x64_s8t_s8n_s32t")
    long = reason("matmul_1x65536x65536_bf16t_bf16n_bf16t")
    assert long == "rhs (65536x65536) has more than 2147483647 elements"


def test_default_is_the_best_kernel_that_computes_the_operation() -> None:
    chosen = catalogue.choose(parse_operation(SMALL))
    assert chosen is not None
    best = max(kernel.rung for kernel in catalogue.kernels() if kernel.rung is not None)
    kernel = catalogue.kernel_of(chosen.name)
    assert kernel is not None and kernel.rung in (best, None)
    assert catalogue.choose(parse_operation("matmul_64x64x64_s8t_s8n_s32t")) is None


def test_a_sweep_tries_no_slow_step_of_the_ladder() -> None:
    names = [one.name for one in catalogue.worth_trying(parse_operation(SMALL))]
    assert names[0] == "default"
    assert not {"r00", "r01"} & set(names)
    assert list(catalogue.worth_trying(parse_operation("matmul_64x64x64_s8t_s8n_s32t"))) == []
