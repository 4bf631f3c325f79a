"""IREE on an NVIDIA GPU: code for sm_80 or sm_89, run on whatever is there.

Where iree-compile is not installed, the environment variable GEMMETRY_PRECOMPILED names a folder
that another machine compiled; ``iree_cuda.yaml`` has the command and lists what is run.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.operation import F32, TensorSpec
from gemmetry.providers.iree_provider.provider import PROVIDER

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("iree") is None, reason="iree-base-runtime is not installed"
    ),
]

Check = Callable[..., Any]

SPEC = yaml.safe_load(Path(__file__).with_name("iree_cuda.yaml").read_text())
PRECOMPILED = os.environ.get("GEMMETRY_PRECOMPILED")


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    return Path(PRECOMPILED or tmp_path).resolve() / "generated"


@pytest.fixture(scope="session")
def gpu() -> Target:
    """The first CUDA device that IREE's runtime finds."""
    if PROVIDER()._compiler_path() is None and PRECOMPILED is None:
        pytest.skip("iree-base-compiler is not installed, and GEMMETRY_PRECOMPILED is not set")
    for target in PROVIDER().targets():
        if target.kind is TargetKind.CUDA and target.index is not None:
            return target
    pytest.skip("IREE's runtime finds no CUDA device on this machine")


@pytest.mark.parametrize("name", SPEC["dispatches"])
def test_every_configuration_is_right(check: Check, gpu: Target, name: str) -> None:
    provider = PROVIDER()
    operation = parse_operation(name)
    reason = provider.supports(operation, gpu)
    if reason:
        pytest.skip(reason)
    for configuration in provider.configurations(operation, gpu):
        executable = check(provider, name, configuration.name)
        assert executable.writes_output
        executable.close()


def test_code_for_an_older_gpu_is_declared(check: Check, gpu: Target) -> None:
    executable = check(PROVIDER(), "matmul_256x256x256_f16t_f16t_f16t")
    if gpu.architecture not in ("sm_80", "sm_86", "sm_87", "sm_89"):
        assert executable.facts.compiled_for == "sm_80"
        assert any("mma.sync" in note for note in executable.facts.notes)


def test_the_device_keeps_memory_and_order(check: Check, gpu: Target) -> None:
    device = check(PROVIDER(), "matmul_64x64x64_f32t_f32t_f32t").device
    spec = TensorSpec("lhs", (64, 64), F32)
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    buffer = device.upload(array, spec)
    clone = device.clone(buffer)
    device.fill_bytes(buffer, 0xAB)
    assert set(device.download(buffer, spec).view(np.uint8).ravel()) == {0xAB}
    assert (device.download(clone, spec) == array).all()
    assert device.free_memory_bytes() > 1 << 30
    assert device.last_level_cache_bytes > 1 << 20
