"""Submissions judged on a GPU: what travels how, right ones, and attacks that need a GPU."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.dispatch import Target
from gemmetry.judge.judging import Judgement, Ruling, judge
from gemmetry.judge.memory import open_arena
from gemmetry.judge.tasks import Submission, read_submission, read_task
from gemmetry.selftest.submissions import GPU_ATTACKS

pytestmark = [pytest.mark.gpu, pytest.mark.alone, pytest.mark.usefixtures("fresh_workers")]
"""A forked process has no code in memory before it runs some, also of libraries that are loaded."""

SMALL = "matmul_64x48x40_f32t_f32t_f32t"


@pytest.fixture(autouse=True)
def _cuda(gpu: Target) -> None:
    if not gpu.device.startswith("cuda"):
        pytest.skip(f"memory is shared by CUDA's driver, and this is {gpu}")


def _judged(
    source: str, task: str = SMALL, *, libraries: bool = True, **options: object
) -> Judgement:
    submission = Submission(name="mine", files={"m.py": source}, main="m.py", entry="f")
    wanted = replace(read_task(task), allows_libraries=libraries)
    settings = {"level": "quick", "time_it": False, "limit_s": 30.0, "memory_bytes": 2**36}
    found = judge(wanted, submission, device="cuda:0", **settings | options)
    print(found, *found.checks, sep="\n")
    return found


def test_memory_of_the_gpu_is_shared() -> None:
    arena = open_arena("cuda:0", "device")
    try:
        buffer = arena._allocate((100, 7), np.dtype(np.float32))
        buffer[...] = 3
        arena.push([buffer])
        buffer[...] = 0
        frozen = arena.freeze([buffer])
        arena.spoil([buffer])
        assert (frozen()[0] == 3).all()
        arena.pull([buffer])
        assert np.isnan(buffer).all()
        arena.place([(buffer, np.full((100, 7), 5, np.float32))])
        arena.pull([buffer])
        assert (buffer == 5).all() and arena.red_zones_intact(buffer)
        assert arena.is_idle()
    finally:
        arena.close()


@pytest.mark.parametrize("transport", ["", "upload"])
def test_a_right_submission(transport: str) -> None:
    source = "import torch\n\n\ndef f(a, b):\n    assert a.is_cuda\n    return a @ b\n"
    found = _judged(source, transport=transport, level="standard")
    assert found.ruling is Ruling.OK
    assert found.memory.startswith(transport or "device")
    assert any(one.kind == "kernel" and one.account == "its own" for one in found.ran)


def test_without_namespaces_system_calls_are_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmetry.judge.judging.RELAXED", (("namespaces",),))
    found = _judged("def f(a, b):\n    return a @ b\n")
    assert found.ruling is Ruling.OK
    assert any("namespaces" in one for one in found.confinement)
    assert not any("seccomp" in one for one in found.confinement)


def test_a_right_submission_is_timed() -> None:
    task = "matmul_2048x2048x2048_bf16t_bf16t_bf16t"
    found = _judged("def f(a, b):\n    return (a @ b).clone()\n", task, time_it=True)
    assert found.ruling is Ruling.OK
    for speed in found.speeds:
        print(speed.record())
    assert found.speed is not None and found.speed.verdict != "faster"  # It copies too.
    assert found.speed.own_ns == pytest.approx(found.speed.median_ns, rel=0.2)
    assert found.speed.roofline is not None and 0.1 < found.speed.roofline < 1
    has_cublaslt = importlib.util.find_spec("nvmath") is not None
    assert ("cublaslt:best" in [one.baseline for one in found.speeds]) == has_cublaslt


@pytest.mark.parametrize("attack", GPU_ATTACKS, ids=lambda one: one.name)
def test_no_attack_is_ok(attack: object) -> None:
    text = attack.text  # type: ignore[attr-defined]
    found = _judged(text, libraries=attack.name != "calls_a_library")  # type: ignore[attr-defined]
    assert found.ruling in (Ruling.WRONG, Ruling.CHEATED)


TRITON = """
import torch, triton
import triton.language as tl


@triton.jit
def product(a, b, c, M, N, K, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    m = tl.program_id(0) * A + tl.arange(0, A)
    n = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((A, B), tl.float32)
    for start in range(0, K, C):
        k = start + tl.arange(0, C)
        x = tl.load(a + m[:, None] * K + k, mask=(m[:, None] < M) & (k < K), other=0)
        y = tl.load(b + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0)
        total = tl.dot(x, y, total)
    place = c + m[:, None] * N + n
    tl.store(place, total.to(tl.bfloat16), mask=(m[:, None] < M) & (n < N))


def f(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    product[grid](a, b, c, m, n, k, A=64, B=64, C=32)
    return c
"""


def test_a_triton_kernel_and_its_machine_code() -> None:
    pytest.importorskip("triton")
    found = _judged(TRITON, "matmul_256x192x128_bf16t_bf16t_bf16t", libraries=False)
    assert found.ruling is Ruling.OK
    kernels = [one.name for one in found.ran if one.kind == "kernel"]
    code = [one for one in found.ran if one.account == "machine code"]
    assert any("product" in one for one in kernels)
    assert any("MMA" in one.instructions and one.accumulator == "F32" for one in code)
    assert all(one.local_bytes is not None for one in code)


CUDA = """
#include <torch/extension.h>

__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= n) return;
  float total = 0;
  for (int i = 0; i < k; ++i) total += a[row * k + i] * b[i * n + column];
  c[row * n + column] = total;
}

torch::Tensor f(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty({a.size(0), b.size(1)}, a.options());
  dim3 grid((b.size(1) + 127) / 128, a.size(0));
  product<<<grid, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(),
                         a.size(0), b.size(1), a.size(1));
  return c;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("f", &f); }
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_a_kernel_in_cuda(tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text(CUDA)
    task = replace(read_task(SMALL), allows_libraries=False)
    found = judge(
        task, read_submission(f"{tmp_path}/mine.cu:f", task), level="quick", time_it=False,
        device="cuda:0", memory_bytes=2**36,
    )  # fmt: skip
    print(found)
    assert found.ruling is Ruling.OK
    code = [one for one in found.ran if one.account == "machine code"]
    assert any("product" in one.name and not one.instructions for one in code)


def test_the_document_names_the_memory_and_what_ran() -> None:
    found = _judged("def f(a, b):\n    return a @ b\n")
    document = json.loads(json.dumps(found.result().document()))
    assert document["memory"] == found.memory
    assert {one["account"] for one in document["ran"]} >= {"its own"}
    assert len(json.dumps(found.result(is_brief=True).document()).encode()) <= 4096
