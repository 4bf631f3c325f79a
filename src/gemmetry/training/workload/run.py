"""One rank's run, from joining the others to the files it leaves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from gemmetry.domain.units import counted
from gemmetry.training.keys import WorkloadConfig
from gemmetry.training.workload.facts import collect_facts
from gemmetry.training.workload.failures import explained
from gemmetry.training.workload.files import write_json
from gemmetry.training.workload.loop import mean_over_ranks, train
from gemmetry.training.workload.memory import check_memory
from gemmetry.training.workload.parallel import spread
from gemmetry.training.workload.paths import ConfiguredPath, prepare
from gemmetry.training.workload.ranks import Ranks, join
from gemmetry.training.workload.straggler import PlantedWait, Straggle
from gemmetry.training.workload.tracing import recorded, trace_path

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
