from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import CompileError
from gemmetry.providers.user_provider.cuda_manifest import load_manifest
from gemmetry.providers.user_provider.provider import UserProvider

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.providers.user_provider import cuda_kernel as compiling

EXAMPLES = Path(__file__).parents[4] / "examples"
OPERATION = parse_operation("matmul_100x70x33_bf16t_bf16n_bf16t")


def _compiled(kernel, folder: Path, architecture: str = "sm_90", operation=OPERATION) -> Any:
    """The plan of the first configuration, and what was compiled."""
    target = Target(TargetKind.CUDA, architecture, None)
    dispatch = Dispatch(operation, Configuration(next(iter(kernel.configurations))), "user", target)
    return compiling.compile_kernel(kernel, dispatch, Workspace(generated=folder))


def test_code_is_for_the_variant_with_all_instructions() -> None:
    for architecture, code in (("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_90a", "sm_90a"),
                               ("sm_120", "sm_120a")):  # fmt: skip
        assert compiling.code_architecture(architecture) == code


TABLE = '[f]\noperations = ["bf16t_bf16n_bf16t"]\narguments = []\ngrid = [1]\nblock = [32]\n'


def _kernel(folder: Path, source: str, table: str = ""):
    (folder / "k.cu").write_text(source)
    (folder / "k.toml").write_text(TABLE + table)
    return load_manifest(f"{folder / 'k.cu'}:f")


def test_formats_and_macros_of_any_kind_reach_the_source(tmp_path) -> None:
    source = """
        #include "own.cuh"
        static_assert(IN_BF16 == 1 && OUT_BF16 == 1 && FAST == 1 && SIZE == sizeof(TYPE));
        extern "C" __global__ void f() {}
    """
    (tmp_path / "own.cuh").write_text("constexpr int SIZE = 8;")
    kernel = _kernel(tmp_path, source, 'configurations = [{FAST = true, TYPE = "double"}]')
    assert _compiled(kernel, tmp_path)[1].facts.shared_memory_bytes == 0
    (tmp_path / "own.cuh").write_text("constexpr int SIZE = 4;")
    with pytest.raises(CompileError):
        _compiled(kernel, tmp_path)


def test_resources_are_those_of_the_kernel_that_was_named(tmp_path) -> None:
    source = "".join(
        f"""extern "C" __global__ void {name}(int* c) {{
          __shared__ int s[{size}]; s[threadIdx.x] = c[9];
          __syncthreads(); c[threadIdx.x] = s[{size - 1} - threadIdx.x]; }}
        """
        for name, size in (("e", 64), ("f", 32), ("g", 96))
    )
    kernel = _kernel(tmp_path, source, "shared_bytes = 1000")
    assert _compiled(kernel, tmp_path)[1].facts.shared_memory_bytes == 32 * 4 + 1000


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('extern "C" __global__ void f() { no_such_name(); }', r"for sm_80: k\.cu\(1\)"),
        ("__global__ void f() {}", 'no extern "C" __global__ function f; it has f'),
    ],
)
def test_the_compilers_first_line_or_a_name_of_cxx_is_the_reason(tmp_path, source, reason) -> None:
    with pytest.raises(CompileError, match=reason):
        _compiled(_kernel(tmp_path, source), tmp_path, "sm_80")


def test_a_kernel_is_loaded_with_its_plan(tmp_path, monkeypatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from gemmetry.hardware import torch_device
    from gemmetry.providers.cuda_provider import executable

    monkeypatch.setattr(torch_device, "open_device", lambda target: f"device {target}")
    monkeypatch.setattr(executable, "load", lambda *given: given)
    target = Target(TargetKind.CUDA, "sm_90", 0)
    dispatch = Dispatch(OPERATION, Configuration("TILE16"), "user", target)
    provider = UserProvider({"kernel": f"{EXAMPLES / 'my_gemm.cu'}:tiled"})
    given: Any = provider.build(dispatch, Workspace(generated=tmp_path / "generated"))
    found, plan, compiled, device = given
    assert (found, device) == (dispatch, f"device {target}")
    assert [launch.compilation for launch in plan.launches] == list(compiled.code)


@pytest.mark.parametrize(("name", "instruction"), [("nvcc", "wgmma"), ("cute", "mma.sync")])
def test_machine_code_is_taken_as_it_is(tmp_path, monkeypatch, name, instruction) -> None:
    names = {"wgmma": {"HGMMA.64x256x16.F32.BF16"}, "mma.sync": {"HMMA.16816.F32.BF16", "LDG.E"}}
    monkeypatch.setattr(compiling, "instructions_of", lambda data: names[instruction])
    path = EXAMPLES / "cubins" / f"{name}_gemm.cubin"
    kernel = load_manifest(f"{path}:{name}")
    operation = parse_operation("matmul_128x64x64_bf16t_bf16n_bf16t")
    plan, compiled = _compiled(kernel, tmp_path / "generated", operation=operation)
    (launch,) = plan.launches
    assert compiled.code[launch.compilation].code == path.read_bytes()
    facts = compiled.facts
    assert facts.registers == kernel.machine_code.registers
    assert facts.shared_memory_bytes == launch.grid.dynamic_bytes
    assert (facts.matrix_instruction, facts.compiled_for) == (instruction, "sm_90a")
    assert (tmp_path / str(facts.binary_path)).read_bytes() == path.read_bytes()


def test_instructions_that_no_tool_shows_are_unknown(monkeypatch) -> None:
    none = Mock(side_effect=compiling.NoDisassemblerError("nvdisasm is not here"))
    monkeypatch.setattr(compiling, "instructions_of", none)
    assert compiling._disassembled_instruction(b"") is None
    monkeypatch.setattr(compiling, "instructions_of", lambda data: {"FFMA"})
    assert compiling._disassembled_instruction(b"") == "none"
