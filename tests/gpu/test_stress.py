"""Stress on a GPU: what it leaves in memory, that it occupies part of the device, and how it
affects launches."""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import StressDevice, Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.registry import load_provider
from gemmetry.selftest.provider import HOPPER_SOURCE, PROVIDER, Carrier, all_mutants
from gemmetry.verification.checks import calls as stress
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher

MUTANTS = [item for item in all_mutants() if item.carrier is Carrier.CUDA]

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

needs_kernels = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
)

SIZES = (24 * 1024, 100 * 1024, 0)
"""Bytes of shared memory that a block requests; 0: all."""

SOURCE = rb"""
extern __shared__ unsigned pool[];

extern "C" __global__ void clear(int words) {
  for (int i = threadIdx.x; i < words; i += blockDim.x) ((volatile unsigned*)pool)[i] = 0;
}

// Counts the words that hold `pattern`, and tells where it ran.
extern "C" __global__ void look(int words, unsigned pattern, unsigned* counts, unsigned* where) {
  unsigned count = 0, processor;
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    count += ((volatile unsigned*)pool)[i] == pattern;
  }
  atomicAdd(counts + blockIdx.x, count);
  asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
  if (threadIdx.x == 0) where[blockIdx.x] = processor;
}
"""


class Probe:
    """Two kernels that use shared memory, one block on each multiprocessor at a time."""

    def __init__(self, gpu: Target) -> None:
        import torch
        from cuda.bindings import nvrtc

        from gemmetry.hardware import cuda_driver as driver
        from gemmetry.hardware.cuda_compiler import Cubin, fetched

        status, program = nvrtc.nvrtcCreateProgram(SOURCE, b"probe.cu", 0, [], [])
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
        options = [f"--gpu-architecture={gpu.architecture}".encode()]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
        cubin = Cubin(fetched(program, "CUBIN"), "")
        torch.cuda.synchronize()  # Makes torch's context the current one.
        self.most_bytes = driver.device_attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.processors = driver.device_attribute("MULTIPROCESSOR_COUNT")
        self._clear, self._look = driver.Kernel(cubin, "clear"), driver.Kernel(cubin, "look")
        for kernel in (self._clear, self._look):
            kernel.allow_shared_memory(self.most_bytes)
        self._torch = torch

    def clear(self) -> None:
        """Zeros in all shared memory."""
        arguments = [ctypes.c_int(self.most_bytes // 4)]
        self._clear.launch(4 * self.processors, 256, self.most_bytes, self._stream(), arguments)
        self._torch.cuda.synchronize()

    def look(self, size_bytes: int, pattern: int) -> tuple[float, int]:
        """The share of words of shared memory that hold `pattern` before anything is written, and
        how many multiprocessors took part."""
        size = size_bytes or self.most_bytes
        counts, where = self._torch.zeros((2, self.processors), dtype=self._torch.int32).cuda()
        arguments = [ctypes.c_int(size // 4), ctypes.c_uint32(pattern)]
        arguments += [ctypes.c_void_p(tensor.data_ptr()) for tensor in (counts, where)]
        self._look.launch(self.processors, 256, size, self._stream(), arguments)
        self._torch.cuda.current_stream().synchronize()
        share = int(counts.sum()) / (size // 4 * self.processors)
        return share, len(set(where.tolist()))

    def _stream(self) -> int:
        return int(self._torch.cuda.current_stream().cuda_stream)


@pytest.fixture(scope="module")
def probe(gpu: Target, device: Any) -> Probe:
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip(f"shared memory is not looked at on {gpu}")
    return Probe(gpu)


def test_a_gpu_can_be_put_under_stress(device: Any) -> None:
    assert isinstance(device, StressDevice)


@needs_kernels
def test_nothing_is_left_out_on_cuda(gpu: Target, device: Any) -> None:
    if gpu.kind is TargetKind.CUDA:
        assert device.stress_limits() == ""


@needs_kernels
@pytest.mark.parametrize("size", SIZES)
def test_shared_memory_holds_nan(device: Any, probe: Probe, size: int) -> None:
    probe.clear()
    share, _ = probe.look(size, 0xFFFF_FFFF)
    assert share < 0.01
    with device.spoiled_scratch(2**20):
        share, processors = probe.look(size, 0xFFFF_FFFF)
    assert share > 0.99
    assert probe.look(size, 0)[0] > 0.99
    if size == 0:
        assert processors >= 0.95 * probe.processors


@needs_kernels
def test_all_registers_of_a_multiprocessor_are_written(device: Any, probe: Probe) -> None:
    with device.spoiled_scratch(2**20):
        kernels, _ = device._stress._kernels_or_reason
    assert kernels.spoil.attribute("NUM_REGS") >= 240
    assert kernels.spoil.attribute("LOCAL_SIZE_BYTES") == 0


@pytest.mark.parametrize("size", [1000, 70_000, 3 * 2**20, 64 * 2**20, 128 * 2**20])
def test_freed_memory_holds_nan(device: Any, size: int) -> None:
    import torch

    def fresh() -> Any:
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    fresh().zero_()
    assert not bool((fresh() == 0xFF).all())
    with device.spoiled_scratch(64 * 2**20):
        workspace = fresh()
        assert bool((workspace == 0xFF).all())
        assert bool(torch.isnan(workspace[: size // 8 * 8].view(torch.float32)).all())


@needs_kernels
def test_load_takes_multiprocessors(device: Any, probe: Probe) -> None:
    assert probe.look(0, 0)[1] >= 0.95 * probe.processors
    with device.load():
        # A look takes microseconds, a slice of the load 250: only at its ends more are free.
        found = [probe.look(0, 0)[1] for _ in range(9)]
    assert sorted(found)[4] <= 0.75 * probe.processors
    assert probe.look(0, 0)[1] >= 0.95 * probe.processors


def test_load_outlasts_launches_and_ends_at_once(device: Any) -> None:
    import torch

    square = torch.ones((4096, 4096), device="cuda")
    product = torch.empty_like(square)
    torch.mm(square, square, out=product)
    torch.cuda.synchronize()
    with device.load():
        torch.mm(square, square, out=product)
        torch.cuda.current_stream().synchronize()
        copying, _ = device._stress._streams
        assert not copying.query(), "the load was over before the launch was"
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 1
    assert all(stream.query() for stream in device._stress._streams)


def test_launches_take_longer_under_load(device: Any) -> None:
    import torch

    source = torch.ones(2**28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def seconds() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(20):
            target.copy_(source)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    seconds()
    alone = seconds()
    with device.load():
        loaded = seconds()
    assert loaded > 1.2 * alone
    assert seconds() < 1.5 * alone


def test_a_kernel_that_wants_all_multiprocessors_is_only_late(device: Any) -> None:
    """Persistent kernels whose blocks wait for each other assume that all blocks run."""
    import torch

    square = torch.ones((8192, 8192), dtype=torch.bfloat16, device="cuda")
    began = time.monotonic()
    with device.load():
        for _ in range(20):
            result = square @ square
    assert time.monotonic() - began < 5
    assert bool((result == 8192).all())


@pytest.fixture
def context_of(gpu: Target, generated: Path) -> Iterator[Any]:
    """context_of(provider, operation) -> what checks look at."""
    executables = []

    def make(provider: Any, name: str, configuration: Any = None) -> Context:
        operation = parse_operation(name)
        if reason := provider.available() or provider.supports(operation, gpu):
            pytest.skip(reason)
        chosen = configuration or next(iter(provider.configurations(operation, gpu)))
        dispatch = Dispatch(operation, chosen, provider.name, gpu)
        executables.append(provider.build(dispatch, Workspace(generated=generated)))
        inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
        reference = compute_reference(operation, inputs)
        return Context(Launcher(executables[-1], operation), operation, inputs, reference, 11)

    yield make
    for executable in executables:
        executable.close()


@pytest.mark.parametrize("provider", ["torch", "triton"])
@pytest.mark.parametrize(
    "name",
    [
        "matmul_513x257x1031_f32t_f32t_f32t",
        "matmul_1024x1024x1024_f32t_f32t_f32t",
        "matmul_513x260x1032_bf16t_bf16n_bf16t",
        "matmul_2048x2048x2048_bf16t_bf16n_f32t",
        "matmul_64x64x16384_bf16t_bf16t_bf16t",
        "matmul_300x200x513_s8t_s8n_s32t",
    ],
)
def test_right_kernels_stand_stress(context_of: Any, provider: str, name: str) -> None:
    pytest.importorskip(provider)
    context = context_of(load_provider(provider), name)
    assert context.first_errors.bad_count == 0
    limits = context.launcher.device.stress_limits()
    wanted = f"passed: {limits}" if limits else "passed"
    assert stress.check_spoiled_scratch(context).text == wanted
    assert stress.check_under_load(context).text == wanted


@needs_kernels
def test_mutants_that_use_unwritten_memory_are_caught(context_of: Any) -> None:
    found = [item for item in MUTANTS if "spoiled_scratch" in item.killed_by]
    assert found
    for item in found:
        context = context_of(PROVIDER(), item.operation, item.as_configuration())
        assert context.first.output.size
        assert stress.check_spoiled_scratch(context).is_failure, item.configuration


@needs_kernels
@pytest.mark.parametrize("item", [i for i in MUTANTS if not i.is_bug], ids=lambda i: i.slug)
def test_right_kernels_of_the_catalogue_stand_stress(
    context_of: Any, gpu: Target, item: Any
) -> None:
    if item.recipe.source == HOPPER_SOURCE and gpu.architecture != "sm_90":
        pytest.skip(f"{item.configuration} is for sm_90, this is {gpu}")
    context = context_of(PROVIDER(), item.operation, item.as_configuration())
    assert not stress.check_spoiled_scratch(context).is_failure
    assert not stress.check_under_load(context).is_failure
