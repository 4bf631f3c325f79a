"""The training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from gemmetry.training.keys import SchedulerKeys, WorkloadConfig
from gemmetry.training.workload.model import draw_batches
from gemmetry.training.workload.parallel import Parallel
from gemmetry.training.workload.ranks import Ranks


def train(
    config: WorkloadConfig,
    parallel: Parallel,
    ranks: Ranks,
    *,
    start_step: Callable[[], None],
    end_step: Callable[[], None],
) -> Iterator[torch.Tensor]:
    """Train, and yield each step's loss on this rank, the mean over its micro-batches, as a scalar
    on the device. The host does not wait for the device."""
    model, keys = parallel.model, config.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=keys.lr,
        betas=keys.betas,
        eps=keys.eps,
        weight_decay=keys.weight_decay,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(config.scheduler))
    batches = draw_batches(config, ranks.device, ranks.rank)
    for _ in range(config.training.max_steps):
        start_step()
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=ranks.device)
        for number, batch in enumerate(batches, 1):
            with parallel.micro_batch(number == len(batches)):
                with parallel.forward():
                    loss = model(*batch) / len(batches)
                loss.backward()
            total += loss.detach()
        if config.training.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.grad_clip_norm)
        optimizer.step()
        scheduler.step()
        end_step()
        yield total


def learning_rate(keys: SchedulerKeys) -> Callable[[int], float]:
    """Step, from 0 -> factor of the learning rate: it rises linearly to 1, then falls to 0."""

    def factor(step: int) -> float:
        if step < keys.warmup_steps:
            return (step + 1) / keys.warmup_steps
        falling = max(1, keys.total_steps - keys.warmup_steps)
        return max(0.0, 1.0 - (step - keys.warmup_steps) / falling)

    return factor


def mean_over_ranks(losses: list[torch.Tensor], size: int) -> list[float | None]:
    """Losses of each step as numbers, None for one that is not finite. All ranks call it."""
    together = torch.stack(losses)
    if size > 1:
        dist.all_reduce(together)
    values = (together / size).tolist()
    return [value if math.isfinite(value) else None for value in values]
