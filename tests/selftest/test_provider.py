from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnknownNameError, UnsupportedError
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
ITEM = mutants_by_configuration()["m38_tf32_inputs_host"]
OPERATION = parse_operation(ITEM.operation)
WORKSPACE = Workspace(generated=Path("unused"))


def test_it_is_found_by_name_and_never_taken_by_default() -> None:
    assert isinstance(load_provider("mutant"), MutantProvider)
    assert not traits_of("mutant").is_default
    assert MutantProvider().available() is None
    assert CPU in MutantProvider().targets()


def test_a_kernel_of_the_host_multiplies_with_one_thread() -> None:
    if not set_blas_threads(2):
        pytest.skip("the BLAS of numpy shows no number of threads")
    try:
        MutantProvider().build(
            Dispatch(OPERATION, ITEM.as_configuration(), "mutant", CPU), WORKSPACE
        ).close()
        assert blas_threads() == 1
    finally:
        set_blas_threads(1)  # as everywhere in the tests, see conftest.py


def test_an_operation_has_exactly_the_kernels_that_run_on_it() -> None:
    found = MutantProvider().configurations(OPERATION, CPU)
    runs_here = {v for v in Carrier if carrier_problem(v, CPU) is None}
    wanted = {
        item.configuration
        for item in all_mutants()
        if item.operation == ITEM.operation and item.carrier in runs_here
    }
    assert {configuration.name for configuration in found} == wanted
    assert ITEM.configuration in wanted
    other = parse_operation("matmul_129x128x128_f32t_f32t_f32t")
    assert list(MutantProvider().configurations(other, CPU)) == []
    assert MutantProvider().supports(other, CPU) is None


def test_a_host_kernel_runs_on_no_gpu() -> None:
    gpu = Target(TargetKind.CUDA, "sm_90")
    names = [c.name for c in MutantProvider().configurations(OPERATION, gpu)]
    assert not [name for name in names if name.endswith("_host")]
    dispatch = Dispatch(OPERATION, ITEM.as_configuration(), "mutant", gpu)
    with pytest.raises(UnsupportedError, match="host kernels do not run on cuda-sm_90"):
        MutantProvider().build(dispatch, WORKSPACE)


def test_a_carrier_whose_library_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "is_installed", lambda name: False)
    assert carrier_problem(Carrier.TRITON, CPU) == "needs triton and torch"
    assert carrier_problem(Carrier.HOST, CPU) is None
    assert carrier_problem(Carrier.CUDA, CPU) == "cuda kernels do not run on cpu"
    assert carrier_problem(Carrier.CUDA, Target(TargetKind.CUDA, "sm_90", None)) == (
        "no cuda-sm_90 is on this machine"
    )


@pytest.mark.parametrize(
    "name", ["matmul_7x5x3_f32t_f32t_f32t", "matmul_65x64x63_f32t_f32t_f32t_alpha2_beta0p5"]
)
def test_it_builds_other_shapes_and_factors(name: str) -> None:
    operation = parse_operation(name)
    configuration = MutantProvider().parse_configuration(ITEM.configuration, operation, CPU)
    assert configuration == ITEM.as_configuration()
    executable = MutantProvider().build(
        Dispatch(operation, configuration, "mutant", CPU), WORKSPACE
    )
    assert executable.facts.notes == (f"a deliberate bug: {ITEM.bug}",)
    executable.close()


def test_it_refuses_other_signatures_and_names() -> None:
    operation = parse_operation("matmul_128x128x128_f32t_f32n_f32t")
    mutant = MutantProvider()
    assert mutant.parse_configuration(ITEM.configuration, operation, CPU) is None
    assert mutant.parse_configuration("default", OPERATION, CPU) is None
    with pytest.raises(UnsupportedError, match="it computes matmul_128x128x128_f32t_f32t_f32t"):
        mutant.build(Dispatch(operation, ITEM.as_configuration(), "mutant", CPU), WORKSPACE)
    with pytest.raises(UnknownNameError, match="m38_tf32_inputs_hots"):
        unknown = Configuration("m38_tf32_inputs_hots")
        mutant.build(Dispatch(OPERATION, unknown, "mutant", CPU), WORKSPACE)
    unknown_operation = parse_operation("matmul_64x64x64_f64n_f64n_f64n")
    assert mutant.supports(unknown_operation, CPU) == ("no mutant computes operations of this form")
