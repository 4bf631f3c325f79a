from __future__ import annotations

import pytest

from gemmetry.sweeps.training.keys import SchedulerKeys

pytest.importorskip("torch")

import torch

from gemmetry.sweeps.workload.run import learning_rate, mean_over_ranks


def test_the_learning_rate_rises_and_falls_to_zero():
    factor = learning_rate(SchedulerKeys(warmup_steps=4, total_steps=12))
    assert [factor(step) for step in (0, 1, 3, 4, 8, 12, 50)] == [0.25, 0.5, 1, 1, 0.5, 0, 0]
    assert learning_rate(SchedulerKeys(warmup_steps=0, total_steps=2))(0) == 1


def test_a_loss_that_is_not_finite_is_none():
    losses = [torch.tensor(value) for value in (0.5, float("nan"), float("inf"))]
    assert mean_over_ranks(losses, 1) == [0.5, None, None]
