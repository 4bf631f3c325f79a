"""A user's kernel on torch tensors of a GPU, the way it is written in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.domain.target import Target
from gemmetry.providers.user_provider.provider import UserProvider

pytestmark = pytest.mark.gpu

Check = Callable[..., Any]

SOURCE = """
import torch

def product(a, b, *, halves=1):
    k = a.shape[-1] // halves
    return sum(a[..., i * k : (i + 1) * k] @ b[..., i * k : (i + 1) * k, :] for i in range(halves))

def into(a, b, out):
    assert a.is_cuda
    out.copy_(a @ b)

def on_the_host(a, b):
    return a.cpu() @ b.cpu()
"""


@pytest.fixture(autouse=True)
def own_switches() -> Iterator[None]:
    """A separate worker runs users' functions; here the torch provider's tests ran before."""
    matmul = pytest.importorskip("torch").backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "none"
    yield
    matmul.fp32_precision = before


def _provider(folder: Path, function: str, **options: Any) -> UserProvider:
    path = folder / "kernel.py"
    path.write_text(SOURCE)
    return UserProvider({"kernel": f"{path}:{function}", **options})


@pytest.mark.parametrize("layouts", ["ttt", "ntn", "nnt"])
def test_a_function_of_tensors_is_right(check: Check, tmp_path: Path, layouts: str) -> None:
    a, b, c = layouts
    configurations = [{"halves": 1}, {"halves": 2}]
    provider = _provider(tmp_path, "product", configurations=configurations)
    for configuration in ("halves1", "halves2"):
        check(provider, f"matmul_257x129x66_f32{a}_f32{b}_f32{c}", configuration)


def test_a_batch_written_into_out_is_right(check: Check, tmp_path: Path) -> None:
    provider = _provider(tmp_path, "into")
    executable = check(provider, "batch_matmul_3x65x33x17_bf16t_bf16n_bf16n")
    assert executable.writes_output


def test_a_result_on_another_device_is_refused(check: Check, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="returned a result on the device cpu"):
        check(_provider(tmp_path, "on_the_host"), "matmul_8x8x8_f32t_f32t_f32t")


def test_it_offers_the_gpu(gpu: Target, tmp_path: Path) -> None:
    assert gpu in _provider(tmp_path, "product").targets()
