"""The compiler applies the spec to a file that has no attribute."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from gemmetry.domain.contracts import TunedDispatch, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, parse_target, split_dispatch_name
from gemmetry.domain.errors import RequestError, UnsupportedError
from gemmetry.providers.iree_provider.batches import (
    dispatch_function,
    tuned_text,
    tuning_spec,
    write_tuning_specs,
)
from gemmetry.providers.iree_provider.compiler import chosen_configuration
from gemmetry.providers.iree_provider.linalg import float_literal
from gemmetry.providers.iree_provider.provider import PROVIDER
from gemmetry.providers.iree_provider.support import target_flags


def dispatch_of(name: str, target: str) -> Dispatch:
    operation, configuration = split_dispatch_name(name)
    return Dispatch(operation, Configuration(configuration), "iree", parse_target(target))


TILE = "tile_config_32x32_vector4x16x2"
MFMA = "batch_matmul_3x256x256x128_f16t_f16t_f32t_tile_config_128x128x64_waves2x2_mfma16"


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        (f"matmul_97x63x65_bf16n_bf16n_bf16n_bias_{TILE}", "cpu",
         "distribution = [32, 32, 0], vector_common_parallel = [4, 16, 0], "
         "vector_reduction = [0, 0, 2]"),
        (f"matmul_splitk_96x64x128_f32t_f32n_f32t_slices4_{TILE}", "cpu",
         "distribution = [1, 32, 32, 0], vector_common_parallel = [1, 4, 16, 0], "
         "vector_reduction = [0, 0, 0, 2]"),
        (MFMA, "hip-gfx942",
         "reduction = [0, 0, 0, 64], subgroup_basis = [[1, 2, 2, 1], [0, 1, 2, 3]], "
         "workgroup = [1, 128, 128, 0]"),
    ],
)  # fmt: skip
def test_the_compiler_takes_the_configuration_from_the_spec(tmp_path, name, target, expected):
    tuned = dispatch_of(name, target)
    plain = Dispatch(tuned.operation, Configuration(), "iree", tuned.target)
    (path,) = write_tuning_specs([tuned], tmp_path)
    assert path.name == f"{name}_spec.mlir"
    assert expected in chosen(plain, f"--iree-codegen-tuning-spec-path={path}")
    assert expected not in chosen(plain)


def chosen(plain: Dispatch, *more: str) -> str:
    """The configuration that the compiler chooses for a dispatch."""
    flags = target_flags(plain.target, plain.operation, {})
    command = [str(PROVIDER()._compiler_path()), "-", "--compile-to=executable-configurations",
               "-o", "-", *flags, *more]  # fmt: skip
    for _ in range(3):  # The compiler's threads seldom wait for each other without end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, input=dispatch_function(plain), capture_output=True, text=True,
                check=False, timeout=60,
            )  # fmt: skip
            break
    assert done.returncode == 0, done.stderr
    return chosen_configuration(done.stdout) or ""


def tuned_of(*names: str) -> list[list[TunedDispatch]]:
    return [[TunedDispatch(dispatch=dispatch_of(name, "cpu"), median_ns=1e3)] for name in names]


def test_one_library_serves_several_shapes(tmp_path: Path):
    names = (
        f"matmul_96x64x128_f32t_f32t_f32t_{TILE}",
        "matmul_64x64x64_f32t_f32t_f32t_default",
        "matmul_64x96x128_f32t_f32t_f32t_tile_config_32x32_vector8x16x1",
    )
    path = tmp_path / "spec.mlir"
    path.write_text(tuned_text(tuned_of(*names), "cpu", ".mlir"))
    vectors = []
    for name in names[::2]:
        plain = dataclasses.replace(dispatch_of(name, "cpu"), configuration=Configuration())
        text = chosen(plain, f"--iree-codegen-tuning-spec-path={path}")
        vectors.append(re.search(r"vector_common_parallel = (\[.*?\])", text)[1])
    assert vectors == ["[4, 16, 0]", "[8, 16, 0]"]
    assert f"// Left out: {names[1]}: no tuning spec" in path.read_text()


def test_a_tie_that_a_spec_can_describe_stands_for_a_winner_that_it_cannot():
    name = "matmul_64x64x64_f32t_f32t_f32t"
    (winner,), (tie,) = tuned_of(f"{name}_default", f"{name}_{TILE}")
    text = tuned_text([[winner, tie]], "cpu", ".mlir")
    assert "vector_common_parallel = [4, 16, 0]" in text
    assert "Left out" not in text
    with pytest.raises(RequestError, match="without attributes"):
        tuned_text([[winner]], "cpu", ".mlir")
    with pytest.raises(RequestError, match="nothing was found"):
        tuned_text([], "cpu", ".mlir")


@pytest.mark.parametrize(
    ("name", "target", "part"),
    [
        ("matmul_64x64x64_f32t_f32t_f32t_data_tiling", "cpu", "without attributes"),
        ("conv2d_1x8x8x4_3x3x16_f32nhwc_f32hwcf_f32nhwc_tile_config_4x64_vector8x32x1_conv", "cpu",
         "convolutions"),
        ("matmul_256x256x256_f16t_f16t_f16t_tile_config_128x128_32x5_tensorcore_mmasync",
         "cuda-sm_80", "CPU and ROCm backends"),
    ],
)  # fmt: skip
def test_what_has_no_spec_says_why(name: str, target: str, part: str):
    with pytest.raises(UnsupportedError, match=part):
        tuning_spec(dispatch_of(name, target))


def test_generate_writes_specs_next_to_the_source_on_request(tmp_path: Path):
    tuned = dispatch_of(f"matmul_96x64x128_f32t_f32t_f32t_{TILE}", "cpu")
    plain = Dispatch(tuned.operation, Configuration(), "iree", tuned.target)
    workspace = Workspace(generated=tmp_path / "generated")
    (source,) = PROVIDER().generate([plain, tuned], workspace)
    written = PROVIDER({"tuning_specs": True}).generate([plain, tuned], workspace)
    assert written == [source, source.parent / f"{tuned.name}_spec.mlir"]
    assert written[1].read_text() == tuning_spec(tuned)


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (1e-05, "1.0e-05"), (1.5e300, "1.5e+300"), (-2.0, "-2.0")]
)
def test_float_literals_have_a_point(value: float, text: str) -> None:
    assert float_literal(value) == text
    assert float(text) == value
