from __future__ import annotations

import pytest

from gemmetry.training.keys import SchedulerKeys

pytest.importorskip("torch")

import torch

from gemmetry.training.workload.loop import learning_rate, mean_over_ranks, memory_errors_as


def test_the_learning_rate_rises_and_falls_to_zero():
    factor = learning_rate(SchedulerKeys(warmup_steps=4, total_steps=12))
    assert [factor(step) for step in (0, 1, 3, 4, 8, 12, 50)] == [0.25, 0.5, 1, 1, 0.5, 0, 0]
    assert learning_rate(SchedulerKeys(warmup_steps=0, total_steps=2))(0) == 1


def test_a_loss_that_is_not_finite_is_none():
    losses = [torch.tensor(value) for value in (0.5, float("nan"), float("inf"))]
    assert mean_over_ranks(losses, 1) == [0.5, None, None]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("GPU memory ran out.\nMore lines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: too much"),
    ],
)
def test_memory_that_runs_out_is_reported_as_such(error):
    with pytest.raises(KeyError) as found, memory_errors_as(KeyError):
        raise error
    assert "\n" not in found.value.args[0]
    assert "memory" in found.value.args[0]


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="else"), memory_errors_as(KeyError):
        raise RuntimeError("something else")
