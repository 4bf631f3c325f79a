"""The training loop.

torch.profiler around the steps; one compressed trace for each rank and recording.

A lower bound of the memory that training needs, so that a hopeless run ends at once.

What was trained, with which libraries and on which devices, for the reader of the traces.

One rank's run, from joining the others to the files it leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gzip
import json
import math
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gemmetry.domain import units
from gemmetry.domain.files import remove
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.units import counted
from gemmetry.engine.recording import KINETO_SUFFIX, METADATA_KEY
from gemmetry.hardware.detect import capture_environment
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.sweeps.training.keys import (
    ProfilingKeys,
    SchedulerKeys,
    WorkloadConfig,
    keys_without_effect,
)
from gemmetry.sweeps.workload.failures import (
    PlantedWait,
    Straggle,
    explained,
    too_little_memory,
    whole_file,
    write_json,
)
from gemmetry.sweeps.workload.model import (
    ConfiguredPath,
    Parallel,
    Transformer,
    count_parameters,
    draw_batches,
    prepare,
    spread,
)
from gemmetry.sweeps.workload.ranks import Ranks, join


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


_END_BYTES = 64
"""Read from the end of a trace to see whether it is complete."""

_COMPRESSION = 6
"""gzip's own default; Python's, 9, takes several times as long for a few percent."""

_CHUNK_BYTES = 1 << 20


def trace_path(folder: Path, rank: int, keys: ProfilingKeys, number: int) -> Path:
    """Where recording `number`, counted from 1, of `rank` is written."""
    stem = keys.trace_filename.removesuffix(".json")
    suffix = "" if number == 1 else f"_{number:02d}"
    return folder / "torch_profiler" / f"rank{rank}" / f"{stem}{suffix}{KINETO_SUFFIX}.gz"


@contextlib.contextmanager
def recorded(
    keys: ProfilingKeys, folder: Path, ranks: Ranks, about: Mapping[str, Any]
) -> Iterator[Callable[[], None]]:
    """Record the steps of the block, at the end of each of which it calls what this yields.

    Args:
        about: JSON values that go into each trace, under ``gemmetry``.

    Raises:
        StorageError: a trace cannot be written.
    """
    if not keys.enabled:
        yield lambda: None
        return
    from torch.profiler import ProfilerActivity, profile, schedule

    written = 0

    def write(profiler: Any) -> None:
        nonlocal written
        written += 1
        with whole_file(trace_path(folder, ranks.rank, keys, written)) as partial:
            _export(profiler, partial)

    activities = [ProfilerActivity.CPU]
    if ranks.on_gpu:
        activities.append(ProfilerActivity.CUDA)  # ROCm's too.
    with warnings.catch_warnings():
        # Warnings that only the last recording is kept (each is written when it ends), and that a
        # schedule without warm-up skews results (which was requested).
        warnings.filterwarnings("ignore", message=".*Profiler ", category=UserWarning)
        profiler = profile(
            activities=activities,
            schedule=schedule(
                wait=keys.wait, warmup=keys.warmup, active=keys.active, repeat=keys.repeat
            ),
            on_trace_ready=write,
            record_shapes=keys.record_shapes,
            profile_memory=keys.profile_memory,
            with_stack=keys.with_stack,
            with_flops=keys.with_flops,
        )
        profiler.preset_metadata_json(METADATA_KEY, json.dumps(about))
        with profiler:
            yield profiler.step


def _export(profiler: Any, path: Path) -> None:
    """Write the trace, compressed. torch's own compression writes line by line, which takes three
    times as long.

    Raises:
        OSError: the trace does not fit; the profiler does not report that by itself.
    """
    plain = path.with_suffix(".plain")
    try:
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as trace:
            trace.seek(max(0, plain.stat().st_size - _END_BYTES))
            if not trace.read().rstrip().endswith(b"}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            trace.seek(0)
            with gzip.open(path, "wb", compresslevel=_COMPRESSION) as file:
                shutil.copyfileobj(trace, file, _CHUNK_BYTES)
    finally:
        remove(plain, inside=path.parent)


_STATE_BYTES = 16
"""Bytes that each parameter takes: its value, its gradient and AdamW's two moments, in fp32."""


def needed_bytes(config: WorkloadConfig, parameters: int, ranks: int) -> int:
    """The fewest bytes that each of the `ranks` needs: for the model's `parameters` with their
    state, the batch, and what the layers of one micro-batch keep for the backward pass.

    A layer keeps at least the inputs of its GEMMs, attention's three and the activation's: six
    times the model's width and twice the MLP's, for each token.
    """
    shards = ranks if config.distributed.mode == "fsdp" else 1
    keys = config.model
    tokens = config.training.micro_batch * config.dataset.sequence_length
    inputs = 4 * (keys.num_dense_features * keys.dense_dim + 1) + 8 * config.dataset.sparse_features
    width = 2 if config.training.mixed_precision == "bf16" else 4
    kept = keys.num_layers * (6 * keys.model_dim + 2 * keys.mlp_hidden_dim) * width
    batch = config.training.gradient_accumulation * inputs
    return parameters * _STATE_BYTES // shards + tokens * (batch + kept)


def check_memory(config: WorkloadConfig, ranks: Ranks) -> None:
    """Compare the lower bound with what is free.

    Raises:
        RequestError: it cannot fit.
    """
    with torch.device("meta"):
        parameters = count_parameters(Transformer(config.model))
    needed = needed_bytes(config, parameters, ranks.size)
    free = (
        torch.cuda.mem_get_info(ranks.device)[0]
        if ranks.on_gpu
        else free_memory_bytes() // ranks.local_size
    )
    if needed > free:
        where = "the GPU" if ranks.on_gpu else "the host, for each rank,"
        raise too_little_memory(
            f"rank {ranks.rank} needs at least {units.format_bytes(needed)}, and {where} has "
            f"{units.format_bytes(free)} free"
        )


def collect_facts(config: WorkloadConfig, parallel: Parallel, ranks: Ranks) -> dict[str, Any]:
    """JSON values about this run. All ranks must call it, as each contributes its device.

    The environment, such as driver and variables, is that of this rank's host.
    """
    own = {
        "rank": ranks.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(ranks.device) if ranks.on_gpu else "cpu",
        "device_index": ranks.device.index if ranks.on_gpu else None,
    }
    each: list[Any] = [None] * ranks.size
    dist.all_gather_object(each, own)
    packages = {"torch": str(torch.__version__)}
    if ranks.on_gpu:
        packages["rccl" if torch.version.hip else "nccl"] = ".".join(
            map(str, torch.cuda.nccl.version())
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "world_size": ranks.size,
        "backend": dist.get_backend(),
        "parallel": parallel.name,
        "parameters": count_parameters(parallel.model),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "ranks": each,
        "environment": dataclasses.asdict(capture_environment(packages)),
        "config": config.model_dump(mode="json"),
        "keys_without_effect": keys_without_effect(config),
    }


LOSSES = "losses.json"
FACTS = "facts_rank0.json"


def run(
    config: WorkloadConfig,
    output: Path,
    *,
    path: str = "kernel",
    straggle: Straggle | None = None,
) -> None:
    """Train, and write traces, losses and facts into `output`.

    Raises:
        RequestError: this host or this torch cannot train as configured, or memory ran out.
        StorageError: a file cannot be written.
    """
    prepare(path, config.distributed)
    ranks = join(config)
    with explained():
        _train(config, output, ranks, path, PlantedWait(straggle, ranks))
        # Not after an error: the others may never arrive, and torchrun ends them.
        dist.barrier()
    dist.destroy_process_group()


def _train(
    config: WorkloadConfig, output: Path, ranks: Ranks, path: str, planted: PlantedWait
) -> None:
    check_memory(config, ranks)
    parallel = spread(config, ranks)
    configured = ConfiguredPath(path, parallel.model, config.fsdp)
    facts = collect_facts(config, parallel, ranks)
    facts |= {"path": configured.facts(), "straggle": planted.facts()}
    if ranks.is_first:
        _announce(facts)
        write_json(output / FACTS, facts)
    about = {"rank": ranks.rank, "world_size": ranks.size, "parallel": parallel.name}
    losses = []
    with recorded(config.profiling, output, ranks, about) as end_step:
        steps = train(config, parallel, ranks, start_step=planted.wait, end_step=end_step)
        for number, loss in enumerate(steps):
            losses.append(loss)
            if ranks.is_first and number % config.training.log_interval == 0:
                _say(f"step {number}: loss {float(loss):.6f} on rank 0")
    means = mean_over_ranks(losses, ranks.size)
    if ranks.is_first:
        facts["path"] = configured.facts()
        write_json(output / FACTS, facts)
        write_json(
            output / LOSSES, {"schema_version": 1, "seed": config.dataset.seed, "losses": means}
        )
        _conclude(config, output, means, facts)


def _announce(facts: dict[str, Any]) -> None:
    ranks = facts["ranks"]
    devices = ", ".join(sorted({rank["device"] for rank in ranks}))
    how = f"{facts['parallel']} over {facts['backend']}"
    if len(ranks) == 1:
        how = "no collectives, so that nothing overlaps with the GEMMs"
    _say(f"{counted(len(ranks), 'rank')} on {devices}, {how}, {facts['parameters']:,} parameters")
    if facts["keys_without_effect"]:
        _say(f"without effect here: {', '.join(facts['keys_without_effect'])}")


def _conclude(
    config: WorkloadConfig, output: Path, losses: list[float | None], facts: dict[str, Any]
) -> None:
    broken = [str(number) for number, loss in enumerate(losses) if loss is None]
    if broken:
        _say(f"warning: the loss is not finite in steps {', '.join(broken)}")
    path = facts["path"]
    if path["requested"] != "kernel" and not path["registered_buffers"]:
        _say(f"warning: no buffer was registered for --path {path['requested']}")
    _say(f"{counted(len(losses), 'step')}; wrote {output / LOSSES} and {output / FACTS}")
    if config.profiling.enabled:
        example = trace_path(output, 0, config.profiling, 1)
        _say(f"traces of each rank, such as {example}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
