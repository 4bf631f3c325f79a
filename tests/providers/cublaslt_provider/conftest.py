"""The provider on a pretended H200: cuBLASLt's calls go to a stand-in that computes on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmetry.domain.dispatch import Target, TargetKind

Call = Callable[[], object]
H200 = Target(TargetKind.CUDA, "sm_90", 0, product="NVIDIA H200")


def _host_gpu(library: Any) -> Any:
    """Host memory that takes the time of the stand-in's pretended clock."""
    from gemmetry.hardware.torch_device import TorchDevice

    class HostGpu(TorchDevice):
        def captured(self, call: Call, *, keeps_result: bool = False) -> Call:
            return call

        def time_calls(self, calls: Sequence[Call]) -> tuple[list[float], str]:
            durations = []
            for call in calls:
                before = library.clock_ns
                call()
                durations.append(library.clock_ns - before)
            return durations, "simulated"

        def time_in_load(self, lead: Any, calls: Any, tail: Any, lead_ns: float) -> list[float]:
            durations, _ = self.time_calls([*lead, *calls, *tail])
            return durations[len(lead) : len(lead) + len(calls)]

    found = HostGpu("cpu")
    found.last_level_cache_bytes = 1 << 16
    return found


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, cublaslt_stand_in: ModuleType) -> Iterator[Any]:
    """The stand-in, in place of the library; the host is ``cuda:0``, an H200."""
    real = pytest.importorskip("nvmath.bindings.cublasLt", reason="nvmath-python is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmetry.providers.cublaslt_provider import bindings

    found = cublaslt_stand_in.StandIn(real)
    device = _host_gpu(found)
    bindings.handle.cache_clear()
    monkeypatch.setattr(bindings, "library", lambda: found)
    monkeypatch.setattr("gemmetry.hardware.torch_device.gpu_targets", lambda: [H200])
    monkeypatch.setattr("gemmetry.hardware.torch_device.open_device", lambda *_, **__: device)
    stream = SimpleNamespace(cuda_stream=77)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index=None: stream)
    yield found
    bindings.handle.cache_clear()
    assert found.alive == {}, "descriptors were left"
