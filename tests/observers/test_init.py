from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Observer
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.hardware.monitors import AmdSmiObserver, CpuObserver, NvmlObserver, make_observers


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(TargetKind.CPU), [CpuObserver]),
        (Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200"), [NvmlObserver]),
        (Target(TargetKind.HIP, "gfx942"), [AmdSmiObserver]),
        (Target(TargetKind.NULL), []),
        (Target(TargetKind.CUDA, "sm_80", None), []),
    ],
)
def test_each_device_has_its_observer(target: Target, expected: list[type]) -> None:
    observers = make_observers(target)
    assert [type(observer) for observer in observers] == expected
    assert all(isinstance(observer, Observer) for observer in observers)


def test_a_machine_without_that_gpu_reports_nothing(monkeypatch) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", no_module)
    for kind in (TargetKind.CUDA, TargetKind.HIP):
        [observer] = make_observers(Target(kind))
        observer.start()
        observer.sample()
        assert observer.stop() == {}
