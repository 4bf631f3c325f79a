"""Tests of compiling plans without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.providers.conftest import dispatch_of

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import parse_target
from gemmetry.hardware import cuda_compiler
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.executable import compile_plan
from gemmetry.providers.cuda_provider.provider import PROVIDER

SMALL = "matmul_64x48x32_bf16t_bf16n_bf16t"
WANTED = dispatch_of(PROVIDER(), SMALL, "r01", parse_target("cuda-sm_90"))
PLAN = catalogue.kernel_of("r01").plan(WANTED.operation, WANTED.configuration, 132)


def test_files_and_facts_of_a_kernel(tmp_path: Path) -> None:
    generated = tmp_path / "generated"
    compiled = compile_plan(PLAN, WANTED, Workspace(generated=generated))
    facts = compiled.facts
    assert facts.registers and facts.spill_bytes == 0 and facts.shared_memory_bytes == 0
    assert (facts.matrix_instruction, facts.compiled_for) == ("none", "sm_90a")
    assert facts.notes == ()
    for path in (facts.binary_path, facts.assembly_path, facts.tool_output_path):
        assert path and path.startswith("generated/cuda/matmul/matmul_64x48x32")
    assert (tmp_path / str(facts.binary_path)).read_bytes().startswith(b"\x7fELF")
    assert ".target sm_90a" in (tmp_path / str(facts.assembly_path)).read_text()
    printed = (tmp_path / str(facts.tool_output_path)).read_text()
    assert "r01_thread_per_output.cu -DIN_F16=0" in printed
    assert b"Rung 1" in (tmp_path / str(facts.source_path)).read_bytes()


def test_machine_code_of_an_earlier_run_is_used(tmp_path, monkeypatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        cuda_compiler, "_compile", lambda _, target: calls.append(target) or Cubin(b"code", "")
    )
    generated, kept = tmp_path / "generated", tmp_path / "kept"
    for force in (False, False, True):
        compile_plan(PLAN, WANTED, Workspace(generated=generated, force=force))
    assert calls == ["sm_90a"] * 2
    for name in ("one", "another"):
        compile_plan(PLAN, WANTED, Workspace(generated=tmp_path / name, kept=kept))
        assert list((tmp_path / name).rglob("*.cubin"))
    assert calls == ["sm_90a"] * 3
