"""Tests of the cuda provider where there is no GPU: what it supports, compiles, and reports."""

from __future__ import annotations

import importlib.util
from typing import Any
from unittest.mock import Mock

import pytest
from tests.providers.conftest import dispatch_of

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_target
from gemmetry.domain.errors import CompileError, UnsupportedError
from gemmetry.providers.cuda_provider.provider import PROVIDER

CROSS = parse_target("cuda-sm_90")
NAME = "matmul_64x48x32_bf16t_bf16n_bf16t"

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("torch") is None,
    reason="cuda-bindings or torch is not installed",
)


def dispatch(configuration: str = "r01", name: str = NAME, target: Target = CROSS) -> Dispatch:
    return dispatch_of(PROVIDER(), name, configuration, target)


def test_what_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    missing = ["cuda.bindings"]
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    assert "gemmetry[cuda]" in (PROVIDER().available() or "")
    assert PROVIDER().targets() == [CROSS] and PROVIDER().versions() == {}
    assert PROVIDER().doctor_notes() == ()
    missing.append("torch")
    assert "cuda-bindings and torch" in (PROVIDER().available() or "")


@needs_compiler
def test_dispatches_are_compiled_without_a_gpu(workspace: Workspace) -> None:
    other = dispatch("r00", "matmul_64x48x32_f16t_f16n_f32t")
    results = PROVIDER().compile([dispatch("r01"), other, dispatch("default")], workspace)
    for result, is_chosen in zip(results, (False, False, True), strict=True):
        assert result.error is None and result.facts.registers
        assert bool(result.facts.default_configuration) is is_chosen


@needs_compiler
def test_a_failure_is_that_dispatchs_alone(workspace, monkeypatch) -> None:
    from gemmetry.providers.cuda_provider import executable as compiling

    kept = compiling.compile_kept

    def fails(compilation: Any, *arguments: Any, **named: Any) -> Any:
        if "naive" in compilation.source:
            raise CompileError("NVRTC rejected it")
        return kept(compilation, *arguments, **named)

    monkeypatch.setattr(compiling, "compile_kept", fails)
    first, second = PROVIDER().compile([dispatch("r00"), dispatch("r01")], workspace)
    assert first.error is not None and first.error.message == "NVRTC rejected it"
    assert second.error is None and second.facts.registers


def test_sources_are_written_with_their_headers(workspace: Workspace) -> None:
    written = PROVIDER().generate([dispatch()], workspace)
    names = {path.name for path in written}
    assert {"r01_thread_per_output.cu", "simt.cuh", "ptx.cuh"} <= names
    assert all(path.is_relative_to(workspace.generated / "cuda") for path in written)


def test_what_the_kernel_does_not_compute_is_refused(workspace: Workspace) -> None:
    large = dispatch("r00", "matmul_600x600x600_bf16t_bf16n_bf16t")
    (result,) = PROVIDER().compile([large], workspace)
    assert isinstance(result.error, UnsupportedError)
    assert "up to 512x512x512" in result.error.message
    for target, reason in ((Target(TargetKind.CUDA, "sm_80", 0), "Hopper"), (CROSS, "compiled")):
        with pytest.raises(UnsupportedError, match=reason):
            PROVIDER().build(dispatch(target=target), workspace)


def test_a_slow_kernel_announces_its_time() -> None:
    slow = PROVIDER().seconds_per_launch(dispatch("r00", "matmul_512x512x512_bf16t_bf16n_bf16t"))
    assert slow is not None and slow > 1
    assert PROVIDER().seconds_per_launch(dispatch("r01")) is None


@needs_compiler
def test_doctor_notes_what_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmetry.hardware import cuda_compiler
    from gemmetry.hardware import torch_device as torch

    gpus = [Target(TargetKind.CUDA, "sm_80", 0)]
    monkeypatch.setattr(torch, "gpu_targets", lambda: gpus)
    (note,) = PROVIDER().doctor_notes()
    assert "cuda:0 is sm_80" in note and PROVIDER().targets() == [CROSS]
    gpus.append(Target(TargetKind.CUDA, "sm_90", 1))
    assert PROVIDER().doctor_notes() == [] and PROVIDER().targets() == [gpus[1], CROSS]

    missing = Mock(side_effect=CompileError("NVRTC cannot be loaded", hint="Install it."))
    monkeypatch.setattr(cuda_compiler, "nvrtc_version", missing)
    assert PROVIDER().doctor_notes() == ["NVRTC cannot be loaded. Install it."]
    assert "nvrtc" not in PROVIDER().versions()


@needs_compiler
def test_waits_are_bounded_on_request(workspace: Workspace) -> None:
    wanted = dispatch("r06_128x128_c1x1_b8", "matmul_128x128x128_bf16t_bf16n_bf16t")

    def ptx(options: dict[str, Any]) -> str:
        (compiled,) = PROVIDER(options).compile([wanted], workspace)
        assert compiled.facts is not None and compiled.facts.assembly_path is not None
        return (workspace.generated.parent / compiled.facts.assembly_path).read_text()

    assert "trap;" not in ptx({})
    assert "trap;" in ptx({"bounded_waits": True})
