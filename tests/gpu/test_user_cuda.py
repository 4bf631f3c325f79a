"""A user's kernel on torch tensors of a GPU, the way it is written in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import LaunchError
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


CUDA_EXAMPLE = Path(__file__).parents[2] / "examples" / "my_gemm.cu"


@pytest.mark.parametrize("configuration", ["TILE16", "TILE32"])
@pytest.mark.parametrize("shape", ["1x1x1", "64x64x64", "257x129x66"])
def test_the_example_in_cuda_is_right(
    check: Check, gpu: Target, shape: str, configuration: str
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("CUDA C++ runs on NVIDIA GPUs")
    provider = UserProvider({"kernel": f"{CUDA_EXAMPLE}:tiled"})
    executable = check(provider, f"matmul_{shape}_bf16t_bf16n_bf16t", configuration)
    assert executable.facts.registers and executable.facts.shared_memory_bytes


def test_clusters_shared_memory_and_factors_reach_a_cuda_kernel(
    check: Check, gpu: Target, tmp_path: Path
) -> None:
    """One thread for each element, in clusters of two blocks; the sum passes through more dynamic
    shared memory than a block gets without asking."""
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if gpu.architecture != "sm_90":
        pytest.skip(f"clusters need sm_90 or later, this is {gpu}")
    (tmp_path / "k.cu").write_text(
        """
        extern "C" __global__ void f(const float* a, const float* b, const float* addend, float* c,
                                     int m, int n, int k, float alpha, float beta) {
          extern __shared__ float memory[];
          unsigned size;
          asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
          const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y;
          float* sum = memory + 100 * 1024 / 4 - 32 + threadIdx.x;
          *sum = 0;
          for (int i = 0; x < n && i < k; ++i) *sum += a[y * k + i] * b[x * k + i];
          if (x < n && size == 2) c[y * n + x] = alpha * *sum + beta * addend[y * n + x];
        }
        """
    )
    (tmp_path / "k.toml").write_text(
        """
        [f]
        operations = ["f32t_f32n_f32t_beta1"]
        arguments = ["A", "B", "addend", "C", "M", "N", "K", "alpha", "beta"]
        grid = ["2 * ceil(N, 64)", "M"]
        block = [32]
        cluster = [2]
        shared_bytes = "100 * 1024"
        """
    )
    provider = UserProvider({"kernel": f"{tmp_path / 'k.cu'}:f"})
    check(provider, "matmul_33x100x65_f32t_f32n_f32t_alpha0p5_beta2")


@pytest.mark.alone  # Other processes' time slices look like work on another stream.
def test_a_cuda_kernel_is_profiled_next_to_torch(
    gpu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("CUDA C++ runs on NVIDIA GPUs")
    monkeypatch.chdir(tmp_path)
    arguments = (
        f"profile --kernel {CUDA_EXAMPLE}:tiled --providers torch,user --device {gpu.device} "
        "--shapes 257x130x66 --dtypes bf16 --layouts tn --time-budget 200ms --json"
    )
    status = run(arguments.split())
    shown = capsys.readouterr()
    records = json.loads(shown.out)["records"]
    reasons = [(one["provider"], one["outcome"], one["reason"]) for one in records]
    assert status == 0, (reasons, shown.err)
    own = {r["configuration"]: r for r in records if r["provider"] == "user"}
    assert set(own) == {"TILE16", "TILE32"}
    for record in own.values():
        assert (record["outcome"], record["verification"]) == ("ok", "passed"), record["reason"]
        assert record["median_ns"] > 0 and record["registers"] > 0
