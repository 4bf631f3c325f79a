"""Tests of the triton provider: what it does where, and right answers from the interpreter."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from packaging.version import Version
from tests.providers.conftest import dispatch_of

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation, parse_target
from gemmetry.providers.triton_provider.provider import PROVIDER

CPU = Target(TargetKind.CPU)

OPERATIONS = [
    "matmul_33x17x65_f32t_f32n_f32t",  # all layouts: ../kernels/test_triton_matmul.py
    "matmul_33x17x65_f32n_f32t_f32n",
    "matmul_32x32x64_f32t_f32t_f32t",
    "matmul_1x1x1_f32t_f32t_f32t",
    "matmul_33x17x65_f16t_f16n_f32t_scalerow",
    "matmul_33x17x65_f16t_f16n_f16n_scaletensor_alpha2_beta0p5_bias_gelu_relu_residual",
    "batch_matmul_3x33x17x20_f32n_f32t_f32n_beta2_relu_bias",
    "batch_matmul_2x17x9x20_f32t_f32t_f32t_scalerow_residual",
    "matmul_33x17x65_s8n_s8t_s32n_beta1_bias_relu_residual",
    "matmul_40x36x256_e4m3t_e4m3n_f16n_vs1x128_vs128x128_alpha0p5_beta2_bias",
]
DOT_SCALED = [  # Triton 3.7.1 cannot interpret its own dot_scaled
    "matmul_33x17x160_e4m3t_e5m2n_f32t_vs1x32",
    "batch_matmul_2x17x33x64_e4m3t_e4m3n_f32t_vs32_e8m0",
    "matmul_18x20x96_e2m1t_e4m3n_f32t_vs32_e8m0",
    "matmul_18x20x80_e2m1t_e2m1n_f16t_vs16_e8m0",
    "matmul_18x20x80_e2m1t_e2m1n_f32t_vs16_e4m3",
]
REFUSED = ["matmul_33x17x65_bf16t_bf16t_bf16t", "matmul_33x17x65_f64t_f64t_f64t",
           "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5"]  # fmt: skip

CONFORMANCE = """
import json, sys
from gemmetry.providers.triton_provider.provider import PROVIDER
from gemmetry.testing import ProviderConformance

class Triton(ProviderConformance):
    provider_class = PROVIDER
    options = {"interpret": True}
    operations, refused = json.loads(sys.argv[1])
    level = "quick"

names = [name for name in dir(Triton) if name.startswith("test_")]
for name in names:
    getattr(Triton(), name)()
print(len(names))
"""

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="no triton or no torch"
)


@needs_triton
def test_the_interpreter_conforms(forked) -> None:
    """Every operation in every configuration, by the suite that all providers must pass; in a
    separate process, as Triton decides whether it interprets when it is first imported."""
    can_scale = Version(version("triton")) >= Version("3.9")
    operations = OPERATIONS + DOT_SCALED * can_scale
    variables = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = forked(CONFORMANCE, json.dumps([operations, REFUSED]), env=variables, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) >= 8


def test_the_interpreter_is_for_what_it_does_rightly() -> None:
    provider = PROVIDER({"interpret": True})
    assert provider.targets() == [CPU]
    assert not provider.compiles_ahead(CPU)
    large = "matmul_4096x4096x4096_f32t_f32t_f32t"
    predicted = provider.seconds_per_launch(dispatch_of(provider, large, "default", CPU))
    assert predicted is not None and predicted > 60


@needs_triton
def test_without_a_gpu_it_compiles_for_others() -> None:
    provider = PROVIDER()
    assert provider.available() is None
    names = [target.name for target in provider.targets() if target.index is None]
    assert names == ["cuda-sm_80", "cuda-sm_90", "cuda-sm_100", "hip-gfx942", "hip-gfx950"]
    assert all(provider.compiles_ahead(target) for target in provider.targets())
    assert set(provider.versions()) == {"triton", "torch"}


def test_generating_writes_source_and_parameters(workspace: Workspace) -> None:
    provider, target = PROVIDER(), parse_target("hip-gfx942")
    operation = parse_operation("matmul_64x64x64_bf16t_bf16t_bf16t")
    listed = list(provider.configurations(operation, target))[:2]
    paths = provider.generate([Dispatch(operation, c, "triton", target) for c in listed], workspace)
    assert sorted(path.suffix for path in paths) == [".json", ".json", ".py"]
    (default,) = (path for path in paths if path.name == "default.gfx942.json")
    pointers = json.loads(default.read_text())["pointers"]
    assert pointers == {"a": "*bf16", "b": "*bf16", "c": "*bf16"}
