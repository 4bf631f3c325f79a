"""Every operation compiled and run on the CPU against float64, and what the provider promises."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Compiled, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, parse_operation, parse_target
from gemmetry.domain.errors import CompileError, DispatchError, LaunchError, UnsupportedError
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.iree_provider.compiler import IreeCompiler, find_ptxas
from gemmetry.providers.iree_provider.provider import PROVIDER

CPU = parse_target("cpu")

OPERATIONS = [
    "matmul_257x129x65_f32t_f32t_f32t",
    "matmul_257x129x65_bf16t_bf16t_bf16t",
    "matmul_257x129x65_s8t_s8t_s32t",
    *(f"matmul_37x29x41_f32{a}_f32{b}_f32{c}" for a, b, c in ("nnn", "nnt", "ntt", "tnn")),
    "matmul_37x29x41_f64t_f64n_f64t",
    "matmul_37x29x41_f32t_f32t_f32t_accf64",
    "matmul_37x29x41_f32t_f32t_f32t_alpha0p5_betam2_bias_gelu_residual",
    "matmul_37x29x41_f16t_f16t_f16n_bias_relu",
    "matmul_37x29x41_f16t_f16n_f32t_residual_gelu",
    "matmul_37x29x41_f16t_f16t_f16t_accf16",
    "matmul_37x29x41_bf16n_bf16t_bf16n_beta1",
    "matmul_37x29x41_bf16t_bf16t_bf16t_accbf16",
    "matmul_37x29x41_e4m3t_e4m3n_bf16t",
    "matmul_37x29x41_e4m3t_e5m2t_f32t",
    "matmul_33x17x20_s8n_s8t_s32n_beta1_bias_relu_residual",
    "batch_matmul_3x17x5x19_f32n_f32t_f32n",
    "batch_matmul_3x17x5x19_bf16t_bf16n_bf16t_bias",
    "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5",
    "matmul_splitk_16x8x60_f16t_f16t_f16t_slices4_bias",
    "matmul_splitk_16x8x60_s8t_s8n_s32t_slices4",
    "conv2d_2x9x11x5_3x2x7_stride2x1_pad1x2_f32nhwc_f32hwcf_f32nhwc",
    "conv2d_1x8x8x16_1x1x4_stride1x1_pad0x0_f16nhwc_f16hwcf_f16nhwc_bias_relu",
    "conv2d_2x9x9x3_3x3x8_stride3x3_pad1x1_s8nhwc_s8hwcf_s32nhwc",
]
TILES = ["tile_config_32x32_vector4x16x4", "tile_config_64x64_cache32x32x16_vector8x32x1"]
MATMUL_CONFIGURATIONS = ["default", "data_tiling", *TILES]
CONV_CONFIGURATIONS = ["default", "tile_config_4x64_vector4x16x4_conv"]
TOO_LARGE = "tile_config_64x128_vector64x128x1"
"""A vector of 64 x 128 f32 is too large for every processor's compiler."""


def dispatch_of(name: str, configuration: str = "default", target=CPU) -> Dispatch:
    operation = parse_operation(name)
    found = PROVIDER().parse_configuration(configuration, operation, target)
    return Dispatch(operation, found or Configuration(configuration), "iree", target)


KNOWN = OPERATIONS[0]
TILED = {
    "matmul_37x29x41_f32n_f32n_f32n",
    "batch_matmul_3x17x5x19_f32n_f32t_f32n",
    "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5",
}
"""With the known one, every kind, and operands swapped and not: what a tile is attached to.
Formats, layouts and epilogues change the text of the function alone, whatever the tile."""


def configurations_of(name: str) -> list[str]:
    """All that the operation is compiled with; of operations that differ in what no configuration
    depends on, each takes one of them in turn."""
    if name.startswith("conv2d"):
        return CONV_CONFIGURATIONS["_s8" in name :]
    if name == KNOWN:
        return MATMUL_CONFIGURATIONS
    if name in TILED:
        return TILES
    if "f64" in name:
        return ["default"]
    return [MATMUL_CONFIGURATIONS[OPERATIONS.index(name) % len(MATMUL_CONFIGURATIONS)]]


@pytest.fixture(scope="module")
def provider() -> PROVIDER:
    return PROVIDER({"threads": 2})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(generated=tmp_path_factory.mktemp("iree") / "generated", jobs=2)


@pytest.fixture(scope="module")
def compiled(provider: PROVIDER, workspace: Workspace) -> dict[str, Compiled]:
    """All dispatches of this file, compiled together."""
    dispatches = [dispatch_of(n, c) for n in OPERATIONS for c in configurations_of(n)]
    results = list(provider.compile(dispatches, workspace))
    assert len(results) == len(dispatches)
    return {result.dispatch.name: result for result in results}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_configuration_is_right(provider, compiled, launch, name):
    operation = parse_operation(name)
    is_integer = operation.signature.lhs.is_integer
    distribution = "offset_uniform" if is_integer else "uniform_signed"
    inputs = make_inputs(operation, distribution=distribution, seed=5)
    reference = compute_reference(operation, inputs)
    limit = 0 if is_integer else bound_rule(operation, reference).fail(reference)
    for configuration in configurations_of(name):
        assert compiled[dispatch_of(name, configuration).name].error is None
        launched = launch(provider, name, configuration, CPU, inputs=inputs)
        error = np.abs(launched.logical_result() - reference.value)
        assert (error <= limit).all(), f"{configuration}: {error.max()}"
        assert launched.result is launched.output
        device = launched.executable.device
        assert device.red_zones_intact(launched.output)
        for array, spec, buffer in zip(inputs, operation.inputs, launched.buffers, strict=True):
            assert device.download(buffer, spec).tobytes() == array.tobytes()


def test_facts_show_what_was_compiled_and_how(compiled, workspace):
    facts = compiled[f"{KNOWN}_default"].facts
    assert {"vector_reduction", "translation_info"} <= set(
        re.findall(r"\w+", facts.default_configuration)
    )
    assert facts.compiled_for not in (None, "host") and facts.compile_ns > 0
    root = workspace.generated.parent
    assert (root / facts.binary_path).is_file()
    assert f"func.func @{KNOWN}_default(" in (root / facts.source_path).read_text()
    assert compiled[f"{KNOWN}_{TILES[0]}"].facts.default_configuration is None
    packed = compiled[f"{KNOWN}_data_tiling"].facts
    assert "Mmt4d" in packed.default_configuration
    assert "--iree-opt-data-tiling" in packed.compile_command


def test_the_machine_code_of_the_host_is_reported(compiled, workspace):
    root = workspace.generated.parent
    # IREE turns a 1x1 convolution into a matmul, drops the attribute, and finds the code it has.
    (forgotten,) = (name for name in compiled if "_1x1x4_" in name and name.endswith("_conv"))
    for name, result in compiled.items():
        facts = result.facts
        if name == forgotten:
            assert facts.assembly_path is facts.matrix_instruction is None
            continue
        assembly = (root / facts.assembly_path).read_text()
        assert assembly.startswith(f"{name}_dispatch_")
        assert facts.matrix_instruction not in (None, "none"), name
        assert facts.matrix_instruction.partition(" ")[0] in assembly
        printed = (root / facts.tool_output_path).read_text()
        assert printed.startswith("// $ iree-compile - -o out.vmfb --iree-hal-target-device=local")
        assert f"//   @{name}\n" in printed
        assert "// exit status 0\n" in printed
        assert str(root) not in printed


def test_the_code_for_nvidia_shows_the_resources_it_needs(tmp_path: Path):
    half = "matmul_256x256x256_f16t_f16t_f16t"
    legacy = "tile_config_64x64_64x5_tensorcore_mmasync"
    named = (
        (half, "default"),
        # These two are the same attribute today, so the compiler keeps the code of one.
        (half, legacy),
        (half, "tile_config_64x64x64_warps2x2_mma"),
        # One legacy dispatch of each other kind.
        ("matmul_splitk_128x128x12288_f16t_f16t_f16t_slices2", legacy),
        ("batch_matmul_16x512x64x512_f16t_f16t_f16t", legacy),
        ("matmul_256x512x128_f32t_f32t_f32t", "tile_config_64x64_32x3_tensorcore_mmasync"),
    )
    wanted = [dispatch_of(*names, parse_target("cuda-sm_80")) for names in named]
    workspace = Workspace(generated=tmp_path / "generated", jobs=2)
    results = list(PROVIDER().compile(wanted, workspace))
    assert [result.error for result in results] == [None] * len(wanted)
    facts = {result.dispatch: result.facts for result in results}
    _, second, third = first_three = [facts[one] for one in wanted[:3]]
    for one in first_three:
        assert one.matrix_instruction == "mma.sync"
        assert one.shared_memory_bytes > 64 * 64 * 2 * 2
        assert "mma.sync" in (tmp_path / one.assembly_path).read_text()
        printed = (tmp_path / one.tool_output_path).read_text()
        if find_ptxas() is None:
            assert one.registers is None
        else:
            assert 32 < one.registers < 256 and one.spill_bytes is not None
            assert "// $ ptxas -v -arch=sm_80 " in printed
    assert second.registers == third.registers
    assert "tile_config_64x64_64x5" not in Path(third.assembly_path).name


def test_a_second_compile_and_a_build_do_no_work_unless_forced(compiled, workspace, monkeypatch):
    again = PROVIDER()
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("the compiler was started"))
    dispatches = [result.dispatch for result in compiled.values()]
    results = {r.dispatch.name: r.facts for r in again.compile(dispatches, workspace)}
    assert results == {name: r.facts for name, r in compiled.items()}
    again.build(dispatches[0], workspace).close()
    monkeypatch.undo()
    (record,) = workspace.generated.glob(f"linalg/*/{KNOWN}/compiled/{TILES[0]}_cpu_*.json")
    before = record.stat().st_mtime_ns
    forced = dataclasses.replace(workspace, force=True)
    (result,) = again.compile([dispatch_of(KNOWN, TILES[0])], forced)
    assert result.error is None
    assert record.stat().st_mtime_ns > before


def test_an_impossible_dispatch_costs_its_own_row_only(tmp_path: Path):
    name = "matmul_128x256x128_f32t_f32t_f32t"
    good, rejected, *refused = (
        dispatch_of(name), dispatch_of(name, TOO_LARGE), dispatch_of(name, "tile_config_of_nobody"),
        dispatch_of("matmul_128x256x128_tf32t_tf32t_f32t"),
    )  # fmt: skip
    workspace = Workspace(generated=tmp_path / "generated")
    dispatches = [good, rejected, *refused, dispatch_of(name, TILES[0])]
    results = {r.dispatch: r.error for r in PROVIDER().compile(dispatches, workspace)}
    assert len(results) == len(dispatches)
    assert results[good] is results[dispatches[-1]] is None
    assert all(isinstance(results[one], UnsupportedError) for one in refused)
    with pytest.raises(CompileError) as built:
        PROVIDER().build(rejected, workspace)
    (log,) = (tmp_path / "generated").rglob(f"{TOO_LARGE}_cpu_*.log")
    printed = log.read_text()
    assert "// exit status 1\n" in printed
    assert printed in (log.parent.parent / "iree_compile_cmd_stdout.mlir").read_text()
    for error in (results[rejected], built.value):
        assert isinstance(error, CompileError)
        program, _, reason = error.message.partition(": ")
        assert program == "iree-compile"
        assert reason in printed, "the reason is the compiler's own"


def test_what_is_not_attached_is_compiled_but_not_built(tmp_path: Path):
    name = "matmul_256x256x256_f16t_f16t_f16t"
    legacy = "tile_config_128x128_32x5_tensorcore_mmasync"
    workspace = Workspace(generated=tmp_path / "generated", jobs=2)
    found = []
    for target, configuration, architecture in (
        ("cuda-sm_90", legacy, "sm_80"),
        ("hip-gfx942", "tile_config_128x128x64_waves2x2_mfma16", None),
        ("vulkan-ada", "default", None),
    ):
        dispatch = dispatch_of(name, configuration, parse_target(target))
        (result,) = PROVIDER().compile([dispatch], workspace)
        assert result.error is None
        found.append(result.facts)
        assert (result.facts.compiled_for, result.facts.run_command) == (architecture, None)
        with pytest.raises(UnsupportedError):
            PROVIDER().build(dispatch, workspace)
    nvidia, amd, _ = found
    for note in ("no sm_90", "pipeline depth 5"):
        assert note in " ".join(nvidia.notes)
    assert (amd.matrix_instruction, amd.spill_bytes) == ("mfma", 0)
    assert 32 < amd.registers <= 512
    assert 0 < amd.shared_memory_bytes <= 64 << 10
    assert amd.assembly_path.endswith(".amdgcn")
    (source,) = (tmp_path / "generated").rglob(f"{name}.mlir")
    assert source.read_text().count("func.func") == 3


def test_code_compiled_ahead_for_sm_80_serves_newer_devices(tmp_path: Path, monkeypatch):
    """`compile` without a device makes sm_80 code, which is what an sm_90 device gets too."""
    name = "matmul_64x64x64_f16t_f16t_f32t"
    workspace = Workspace(generated=tmp_path / "generated")
    (made,) = PROVIDER().compile([dispatch_of(name, target=parse_target("cuda-sm_80"))], workspace)
    assert made.error is None
    assert "host work" not in " ".join(made.facts.notes)
    monkeypatch.setattr(IreeCompiler, "_call", lambda *_, **__: pytest.fail("compiled again"))
    for target in ("cuda-sm_90:0", "cuda-sm_120:0"):
        (found,) = PROVIDER().compile([dispatch_of(name, target=parse_target(target))], workspace)
        assert found.facts.binary_path == made.facts.binary_path
        assert found.facts.compiled_for == "sm_80"
        assert found.facts.registers is None  # of another architecture
        assert "about 15 µs of host work" in " ".join(found.facts.notes)  # its clock hides it


def test_without_a_compiler_binaries_from_elsewhere_run(compiled, workspace, monkeypatch):
    monkeypatch.setattr(PROVIDER, "_compiler_path", lambda _self: None)
    provider = PROVIDER()
    assert provider.available() is None
    assert "compiled elsewhere" in provider.doctor_notes()[0]
    known = dispatch_of(KNOWN)
    provider.build(known, workspace).close()
    unknown = dispatch_of("matmul_38x29x41_f32t_f32t_f32t")
    (result,) = provider.compile([unknown], workspace)
    assert isinstance(result.error, CompileError)
    assert "this machine has no iree-compile" in result.error.message


@pytest.mark.usefixtures("compiled")
def test_wrong_arguments_and_a_closed_executable_are_launch_errors(provider, launch):
    launched = launch(provider, KNOWN, "default", CPU)
    executable, output = launched.executable, launched.output
    with pytest.raises(LaunchError, match=f"launching {KNOWN}"):
        executable.run([], output)
    executable.close()
    with pytest.raises(LaunchError, match="is closed"):
        executable.run([], output)


def test_availability(tmp_path: Path):
    provider = PROVIDER()
    assert provider.available() is None
    assert str(tmp_path) in PROVIDER({"iree_bin_dir": str(tmp_path)}).available()
    (tmp_path / "iree-compile").symlink_to(provider._compiler_path())
    mine = PROVIDER({"iree_bin_dir": str(tmp_path)})
    assert mine._compiler_path() == tmp_path / "iree-compile"
    assert mine.available() is None
    assert set(provider.versions()) == {"iree-base-compiler", "iree-base-runtime"}
    assert "sm_90" in provider.doctor_notes()[0]
    assert provider.compiles_ahead(CPU)
    first, *others = provider.targets()
    assert first == CPU
    assert {target.name for target in others if target.index is None} == {
        "cuda-sm_80", "cuda-sm_86", "cuda-sm_89", "hip-gfx942", "hip-gfx950", "vulkan-ada",
    }  # fmt: skip


def test_compile_flags_of_ones_own_reach_the_compiler(tmp_path: Path):
    provider = PROVIDER({"compile_flags": ["--no-such-flag"]})
    dispatch = dispatch_of("matmul_64x64x64_f32t_f32t_f32t")
    (result,) = provider.compile([dispatch], Workspace(generated=tmp_path))
    assert isinstance(result.error, DispatchError)
    assert "no-such-flag" in result.error.message


def test_sources_are_generated_without_compiling_and_a_killed_compile_leaves_nothing(tmp_path):
    names = ["matmul_64x64x64_f32t_f32t_f32t", "matmul_64x64x64_f16t_f16t_f16t"]
    dispatches = [dispatch_of(n, c) for n in names for c in ("default", TILES[0])]
    refused = dispatch_of("matmul_64x64x64_tf32t_tf32t_f32t")
    workspace = Workspace(generated=tmp_path / "generated")
    paths = PROVIDER().generate([*dispatches, refused], workspace)
    assert [path.name for path in paths] == [f"{name}.mlir" for name in names]
    assert not list(tmp_path.rglob("*.vmfb"))
    # A killed compile leaves the source, a temporary file, and no record.
    (paths[0].parent / f".{paths[0].stem[:20]}.vmfb.rest").write_bytes(os.urandom(64))
    (result,) = PROVIDER().compile(dispatches[:1], workspace)
    assert result.error is None
    PROVIDER().build(dispatches[0], workspace).close()
