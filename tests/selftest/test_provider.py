from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnknownNameError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.hardware.host_device import blas_threads, set_blas_threads
from gemmetry.providers.base import traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.selftest import provider
from gemmetry.selftest.provider import (
    Carrier,
    MutantProvider,
    all_mutants,
    carrier_problem,
    mutants_by_configuration,
)

CPU = Target(TargetKind.CPU)
GPU = Target(TargetKind.CUDA, "sm_90", None)
MUTANT = MutantProvider()
ITEM = mutants_by_configuration()["m38_tf32_inputs_host"]
OPERATION = parse_operation(ITEM.operation)
WORKSPACE = Workspace(generated=Path("unused"))


def build(operation: Operation, configuration: Configuration, target: Target = CPU) -> Executable:
    return MUTANT.build(Dispatch(operation, configuration, "mutant", target), WORKSPACE)


def test_it_is_found_by_name_and_never_taken_by_default() -> None:
    assert isinstance(load_provider("mutant"), MutantProvider)
    assert not traits_of("mutant").is_default
    assert MUTANT.available() is None
    assert CPU in MUTANT.targets()


def test_a_kernel_of_the_host_multiplies_with_one_thread() -> None:
    if not set_blas_threads(2):
        pytest.skip("the BLAS of numpy shows no number of threads")
    try:
        build(OPERATION, ITEM.as_configuration()).close()
        assert blas_threads() == 1
    finally:
        set_blas_threads(1)  # as everywhere in the tests, see conftest.py


def test_an_operation_has_exactly_the_kernels_that_run_on_it() -> None:
    found = {one.name for one in MUTANT.configurations(OPERATION, CPU)}
    assert found == {
        item.configuration
        for item in all_mutants()
        if item.operation == ITEM.operation and carrier_problem(item.carrier, CPU) is None
    }
    assert ITEM.configuration in found
    other = parse_operation("matmul_129x128x128_f32t_f32t_f32t")
    assert list(MUTANT.configurations(other, CPU)) == []
    assert MUTANT.supports(other, CPU) is None


def test_a_host_kernel_runs_on_no_gpu() -> None:
    names = [one.name for one in MUTANT.configurations(OPERATION, GPU)]
    assert not [name for name in names if name.endswith("_host")]
    with pytest.raises(UnsupportedError, match="host kernels do not run on cuda-sm_90"):
        build(OPERATION, ITEM.as_configuration(), GPU)


def test_a_carrier_whose_library_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "is_installed", lambda name: False)
    assert carrier_problem(Carrier.TRITON, CPU) == "needs triton and torch"
    assert carrier_problem(Carrier.HOST, CPU) is None
    assert carrier_problem(Carrier.CUDA, CPU) == "cuda kernels do not run on cpu"
    assert carrier_problem(Carrier.CUDA, GPU) == "no cuda-sm_90 is on this machine"


@pytest.mark.parametrize(
    "name", ["matmul_7x5x3_f32t_f32t_f32t", "matmul_65x64x63_f32t_f32t_f32t_alpha2_beta0p5"]
)
def test_it_builds_other_shapes_and_factors(name: str) -> None:
    operation = parse_operation(name)
    configuration = MUTANT.parse_configuration(ITEM.configuration, operation, CPU)
    assert configuration == ITEM.as_configuration()
    executable = build(operation, configuration)
    assert executable.facts.notes == (f"a deliberate bug: {ITEM.bug}",)
    executable.close()


def test_it_refuses_other_signatures_and_names() -> None:
    operation = parse_operation("matmul_128x128x128_f32t_f32n_f32t")
    assert MUTANT.parse_configuration(ITEM.configuration, operation, CPU) is None
    assert MUTANT.parse_configuration("default", OPERATION, CPU) is None
    with pytest.raises(UnsupportedError, match="it computes matmul_128x128x128_f32t_f32t_f32t"):
        build(operation, ITEM.as_configuration())
    with pytest.raises(UnknownNameError, match="m38_tf32_inputs_hots"):
        build(OPERATION, Configuration("m38_tf32_inputs_hots"))
    unknown = parse_operation("matmul_64x64x64_f64n_f64n_f64n")
    assert MUTANT.supports(unknown, CPU) == "no mutant computes operations of this form"
