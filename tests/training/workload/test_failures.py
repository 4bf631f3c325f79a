from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError

pytest.importorskip("torch")

import torch

from gemmetry.sweeps.workload import failures
from gemmetry.sweeps.workload.failures import explained


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("the GPU is full.\nMore lines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: too much"),
    ],
)
def test_memory_that_runs_out_leads_to_smaller_batches(error):
    with pytest.raises(RequestError) as found, explained():
        raise error
    assert found.value.message.startswith("too little memory: ")
    assert "\n" not in found.value.message
    assert "training.gradient_accumulation" in found.value.hint


def test_an_operator_that_is_not_deterministic_leads_to_the_key():
    torch.set_deterministic_debug_mode("error")
    try:
        with pytest.raises(RequestError, match="not have a determ") as found, explained():
            torch.zeros(2).put_(torch.tensor([0, 0]), torch.ones(2))
    finally:
        torch.set_deterministic_debug_mode("default")
    assert "training.deterministic=false" in found.value.hint


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="else"), explained():
        raise RuntimeError("something else")


@pytest.mark.parametrize(("ranks", "waits"), [(1, []), (2, [failures.LATER_S])])
def test_what_may_follow_from_another_rank_comes_later(monkeypatch, ranks, waits):
    """Of two ranks that fail in the same second, torchrun quotes the first by number."""
    waited = []
    monkeypatch.setattr(failures.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(failures.dist, "get_world_size", lambda: ranks)
    monkeypatch.setattr(failures.time, "sleep", waited.append)
    with pytest.raises(RuntimeError, match="closed"), explained():
        raise RuntimeError("the connection was closed")
    assert waited == waits
    assert failures.LATER_S > 1, "torchrun compares whole seconds"
    with pytest.raises(RequestError), explained():
        raise torch.OutOfMemoryError("full")
    assert waited == waits
