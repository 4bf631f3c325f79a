"""The CPU's side; the GPU's is in tests/gpu."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gemmetry.hardware import opening as late_work  # noqa: E402
from gemmetry.hardware import torch_timing as torch_order  # noqa: E402
from gemmetry.hardware.torch_timing import same_bits, unordered_on_host  # noqa: E402


def test_a_result_of_its_own_is_watched(monkeypatch):
    looked = threading.Event()
    monkeypatch.setattr(late_work, "LONGEST_WAIT_S", 60.0)
    waiting = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda seconds: looked.set() or time.sleep(seconds)
    )
    monkeypatch.setattr(late_work, "time", waiting)
    kept = torch.zeros(4, 4)

    def write():
        looked.wait(60)  # The first look is over, however late it came.
        kept.fill_(1)

    worker = threading.Thread(target=write)

    def launch():
        worker.start()
        return kept

    problem = unordered_on_host(launch, torch.empty(4, 4))
    worker.join()
    assert "continued to write" in problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("size", [1, 5, 64])
def test_bits_are_compared_not_values(dtype, size):
    tensor = torch.full((size,), float("nan")).to(dtype)
    assert same_bits(tensor, tensor.clone())
    zero = torch.zeros(size).to(dtype)
    assert not same_bits(zero, (-torch.zeros(size)).to(dtype))
    view = torch.arange(12.0).reshape(3, 4)
    assert same_bits(view.T, view.T.contiguous())
    assert not same_bits(view[:, 1:2], view[:, 2:3])


def test_one_look_is_made_from_another_stream(monkeypatch):
    """The streams are simulated; tests/gpu/test_renewal.py has real ones."""
    current, looked = ["default"], []

    @contextlib.contextmanager
    def stream(one):
        current.append(one)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "new")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    problems = {}

    def look(launch, output, cycles, wait_s):
        looked.append((current[-1], cycles // torch_order._BLOCK_CYCLES))
        was_blocked = len(looked) > 1
        return problems.get(current[-1], ""), was_blocked

    monkeypatch.setattr(torch_order, "_look", look)
    output = torch.empty(2)
    assert torch_order.unordered_on_stream(lambda: None, output) == ""
    assert looked == [("default", 1), ("new", 4), ("default", 4)]
    problems["new"] = "it ran ahead"
    problem = torch_order.unordered_on_stream(lambda: None, output)
    assert "another stream than the default one is current: it ran ahead" in problem
    problems["default"] = "it ran ahead there"
    assert torch_order.unordered_on_stream(lambda: None, output) == "it ran ahead there"
    assert current == ["default"]
