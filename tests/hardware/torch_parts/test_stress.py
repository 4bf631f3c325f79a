"""Tests of stress on a GPU without one (on one: tests/gpu/test_stress.py)."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from gemmetry.domain.errors import CompileError
from gemmetry.hardware import torch_timing as torch_stress
from gemmetry.hardware.torch_timing import GpuStress, StressKernels

CPU = torch.device("cpu")
SHARED_BYTES, PROCESSORS = 232_448, 132


class Stream:
    """Counts who waits for it, and what it waits for."""

    def __init__(self, name):
        self.name, self.cuda_stream, self.waits, self.synchronized = name, hash(name), [], 0

    def wait_stream(self, other):
        self.waits.append(other)

    def synchronize(self):
        self.synchronized += 1


class FakeCuda:
    """Streams that note what is put on them; events that are over when `over` says so."""

    def __init__(self):
        self.now = self.main = Stream("main")
        self.made: list[Stream] = []
        self.synchronized = 0
        self.over: Any = lambda stream: True
        self.get_allocator_backend = lambda: "native"
        self.memory_snapshot = list
        self.get_device_capability = lambda device: (9, 0)

    def Stream(self, device):  # noqa: N802 (torch's name)
        self.made.append(Stream(f"side {len(self.made)}"))
        return self.made[-1]

    def Event(self):  # noqa: N802 (torch's name)
        event = SimpleNamespace(stream=None)
        event.record = lambda stream: setattr(event, "stream", stream)
        event.query = lambda: self.over(event.stream)
        return event

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    def current_stream(self, device):
        return self.now

    def synchronize(self, device):
        self.synchronized += 1


class FakeKernel:
    def __init__(self):
        self.launches: list[tuple[Any, ...]] = []

    def launch(self, blocks, threads, dynamic_bytes, stream, arguments):
        values = tuple(argument.value for argument in arguments)
        self.launches.append((blocks, threads, dynamic_bytes, stream, values))


@pytest.fixture
def cuda():
    return FakeCuda()


@pytest.fixture
def word(monkeypatch):
    """The signal that ends the load."""
    made = torch.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(torch_stress, "_pinned_word", lambda: made)
    return made


@pytest.fixture
def stress(cuda):
    made = GpuStress(CPU, cuda)
    kernels = StressKernels(FakeKernel(), FakeKernel(), SHARED_BYTES, PROCESSORS)
    made._kernels_or_reason = (kernels, "")
    made.spoils, made.occupies = kernels.spoil.launches, kernels.occupy.launches
    return made


@pytest.fixture
def blocks(monkeypatch):
    """All that is allocated."""
    made: list[torch.Tensor] = []
    allocate = torch.empty

    def keep(*shape, **how):
        made.append(allocate(*shape, **how))
        return made[-1]

    monkeypatch.setattr(torch, "empty", keep)
    return made


@pytest.mark.parametrize("free_bytes", [2**34, 2**20])
def test_blocks_of_many_sizes_are_filled(stress, blocks, free_bytes):
    stress.spoil(3 * 2**20, free_bytes)
    sizes = [block.numel() for block in blocks]
    assert max(sizes) == min(6 * 2**20, free_bytes // 8)
    assert 512 <= min(sizes) < 1024
    assert sum(sizes) <= free_bytes // 2
    for large, small in zip(sizes[::2], sizes[2::2], strict=False):
        assert small == large // 2
    assert all(bool((block == 0xFF).all()) for block in blocks)


def _segment(cuda, kind, *sizes, **other):
    """As torch describes it; negative sizes are in use."""
    blocks = [{"size": abs(s), "state": "inactive" if s > 0 else "active_allocated"} for s in sizes]
    usual = {"device": None, "stream": cuda.main.cuda_stream, "segment_pool_id": (0, 0)}
    return {**usual, "segment_type": kind, "blocks": blocks, **other}


def test_all_that_the_allocator_keeps_is_filled(stress, cuda, blocks):
    mib = 2**20
    segments = [
        _segment(cuda, "small", 1536, -512, 2 * mib + 512),
        _segment(cuda, "large", -3 * mib, 17 * mib, mib // 2),
        _segment(cuda, "large", 5 * mib, device=1), _segment(cuda, "large", 6 * mib, stream=99),
        _segment(cuda, "large", 7 * mib, segment_pool_id=(0, 1)),
    ]  # fmt: skip
    cuda.memory_snapshot = lambda: segments
    stress.spoil(512, 0)
    # Half a MiB between large blocks is never handed out, as small requests get small blocks.
    assert [block.numel() for block in blocks] == [17 * mib, mib, mib, 1536, 512]
    assert all(bool((block == 0xFF).all()) for block in blocks)
    blocks.clear()
    cuda.get_allocator_backend = lambda: "cudaMallocAsync"
    stress.spoil(512, 0)
    assert blocks == []


def test_shared_memory_and_registers_of_all_processors_are_spoiled(stress, cuda):
    stress.spoil(1000, 2**30)
    (launch,) = stress.spoils
    blocks, threads, dynamic_bytes, stream, arguments = launch
    assert blocks >= 2 * PROCESSORS
    assert (threads, dynamic_bytes) == (256, SHARED_BYTES)
    assert stream == cuda.main.cuda_stream
    assert arguments == (0xFFFF_FFFF, 0, 2, SHARED_BYTES // 4)
    assert cuda.synchronized == 1
    stress.clean()
    assert stress.spoils[1] == (*launch[:4], (0, 0, 2, SHARED_BYTES // 4))
    assert cuda.synchronized == 2


def test_load_is_queued_ahead_and_called_off(stress, cuda, word):
    with stress.load(4096):
        copying, occupying = cuda.made
        launches = list(stress.occupies)
        assert int(word) == 0
        assert copying.synchronized == occupying.synchronized == 0
    assert int(word) == 1
    assert copying.synchronized == occupying.synchronized == 1
    # Half of the processors, in slices: half a millisecond at most, several milliseconds in all.
    slice_ns = launches[0][4][1]
    wanted = (PROCESSORS // 2, 32, SHARED_BYTES, occupying.cuda_stream, (word.data_ptr(), slice_ns))
    assert launches == [wanted] * len(launches)
    assert slice_ns <= 500_000
    assert len(launches) * slice_ns > 10_000_000
    # Copies do not run ahead of slices forever.
    assert copying.waits == [occupying] * 2
    assert stress.occupies == launches, "no more load once the launches are done"


def test_load_continues_while_launches_run_but_not_forever(stress, cuda, word, monkeypatch):
    requested: list[str] = []

    def over(stream):
        requested.append(stream.name)
        return stream is not cuda.main or requested.count("main") > 5

    cuda.over = over
    with stress.load(4096):
        ahead = len(stress.occupies)
    assert len(stress.occupies) == ahead + 5 * ahead // 2
    assert int(word) == 1
    monkeypatch.setattr(torch_stress, "_MOST_LOAD_S", 0.02)
    cuda.over = lambda stream: False
    word.zero_()
    with stress.load(4096):
        pass
    assert int(word) == 1


def test_an_error_inside_ends_the_load(stress, cuda, word):
    cuda.over = lambda stream: pytest.fail("nobody waits for launches that failed")
    with pytest.raises(ValueError, match="inside"), stress.load(4096):
        raise ValueError("inside")
    assert int(word) == 1
    assert [stream.synchronized for stream in cuda.made] == [1, 1]


def test_without_kernels_of_our_own_the_rest_works(cuda, word, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    stress = GpuStress(CPU, cuda)
    assert stress.limits.startswith("on ROCm only freed memory is spoiled")
    stress.spoil(1000, 2**30)
    with stress.load(4096):
        assert int(word) == 0
    assert [stream.synchronized for stream in cuda.made] == [1, 1]


def test_a_compiler_that_is_missing_or_too_old_is_reported(cuda, monkeypatch):
    compiler = pytest.importorskip("gemmetry.hardware.cuda_compiler", exc_type=ImportError)

    def refuse(name, macros, architecture):
        raise CompileError(f"NVRTC rejected {name} for {architecture}: unknown")

    monkeypatch.setattr(compiler, "compile_source", refuse)
    assert "(NVRTC rejected stress for sm_90: unknown)" in GpuStress(CPU, cuda).limits
    monkeypatch.setitem(sys.modules, "gemmetry.hardware.cuda_driver", None)
    monkeypatch.delattr("gemmetry.hardware.cuda_driver", raising=False)
    assert "without cuda-bindings and NVRTC only freed memory" in GpuStress(CPU, cuda).limits
