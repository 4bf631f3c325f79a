"""The workload as its users start it, on the CPU with gloo."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from gemmetry.formats.events import TraceRows
from gemmetry.formats.kineto import read_kineto
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.trainer import LABEL

pytest.importorskip("torch")

STEPS = {"ProfilerStep#2", "ProfilerStep#3"}
"""Those that the preset tiny records."""


def read(folder: Path, rank: int, name: str = "customer_trace") -> TraceRows:
    path = folder / "torch_profiler" / f"rank{rank}" / f"{name}.pt.trace.json.gz"
    with gzip.open(path) as file:
        rows = read_kineto(file)
    assert rows is not None and not rows.partial
    return rows


def annotations(rows: TraceRows) -> set[str]:
    return {rows.names[index] for index in rows.annotations.name}


def seconds_of(rows: TraceRows, label: str) -> list[float]:
    every = zip(rows.annotations.name, rows.annotations.duration_ns, strict=True)
    return [duration / 1e9 for index, duration in every if rows.names[index] == label]


def forward_gemms(rows: TraceRows) -> set[tuple[int, ...]]:
    """M, K and N of each ``aten::addmm``."""
    found = set()
    for name, argument in zip(rows.operators.name, rows.operators.arguments, strict=True):
        if rows.names[name] == "aten::addmm" and argument >= 0:
            _, (m, k), (_, n), *_ = json.loads(rows.arguments[argument].shapes)
            found.add((m, k, n))
    return found


UNRECORDED = ("--override", "profiling.enabled=false")
EXACT = ("--override", "training.mixed_precision=none", "model.dropout=0")
FSDP = (*EXACT, "distributed.mode=fsdp")
RUNS = {
    "ddp": (),
    "again": UNRECORDED,
    "other": (*UNRECORDED, "dataset.seed=1"),
    "exact": (*EXACT, UNRECORDED[1]),
    "fsdp": FSDP,
    "ahead": (*FSDP, UNRECORDED[1], "fsdp.prefetch_layers=2",
              "fsdp.sharding_strategy=shard_grad_op"),
    "registered": ("--path", "symmetric", *FSDP, UNRECORDED[1]),
    "late": ("--straggle", "1:100", "--override", "profiling.trace_filename=late.json",
             "training.max_steps=7", "profiling.active=5"),
}  # fmt: skip
PLAIN_WINDOWS = """
import torch.distributed._symmetric_memory as memory
from gemmetry.sweeps import trainer as paths
paths._reason_against = lambda path, distributed: ""
memory.set_backend = lambda name: None
memory.empty = lambda size, dtype, device: torch.full(size, torch.nan, dtype=dtype, device=device)
memory.rendezvous = lambda tensor, group: None
"""
"""Stands in for NCCL's windows, with plain memory."""
ALONE = {
    "plain": (),
    "twice": ("--override", "profiling.wait=0", "profiling.active=1", "profiling.repeat=2"),
    "nan": (*UNRECORDED, "optimizer.lr=1e30", "training.grad_clip_norm="),
}
REFUSED = {
    "heads": (("--override", "model.num_heads=3"), "model.num_heads 3"),
    "memory": (("--override", "model.vocab_size=1000000000000"), "too little memory: rank 0 needs"),
    "rank": (("--straggle", "4:10"), "--straggle names rank 4, but there is 1"),
    "form": (("--straggle", "now"), "not of the form RANK:MS"),
    "path": (("--path", "copy_engine"), "--path copy_engine is not possible: distributed.backend"),
}


@pytest.fixture(scope="module")
def two(train, tmp_path_factory):
    return train(tmp_path_factory.mktemp("two"), RUNS, before=PLAIN_WINDOWS)


@pytest.fixture(scope="module")
def alone(train, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    (folder / "blocked").mkdir()
    (folder / "blocked" / "torch_profiler").write_text("in the way")
    refused = {name: arguments for name, (arguments, _) in REFUSED.items()}
    return train(folder, {**ALONE, **refused, "blocked": ()}, ranks=1)


def test_every_rank_leaves_a_trace_and_the_first_one_losses_and_facts(two):
    run = two["ddp"]
    assert run.status == [0, 0], run.stderr
    traces = [f"torch_profiler/rank{rank}/customer_trace.pt.trace.json.gz" for rank in (0, 1)]
    assert run.files == ["facts_rank0.json", "losses.json", *traces]
    assert "2 ranks on cpu, DDP over gloo" in run.stdout[0] and run.stdout[1] == ""
    facts = run.facts
    assert (facts["world_size"], facts["backend"], facts["parallel"]) == (2, "gloo", "DDP")
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1]
    assert len({rank["pid"] for rank in facts["ranks"]}) == 2
    assert facts["config"]["model"]["model_dim"] == 64
    # Embedding, projections, two layers (GEMMs, their biases, normalisation), the end, the scorer.
    layer = 4 * 64**2 + 2 * 64 * 256 + (192 + 64 + 256 + 64) + 4 * 64
    ends = 512 * 16 + (32 + 1) * 64 + (16 + 1) * 64 + 2 * 64 + (64 + 1) * 256 + 256 + 1
    assert facts["parameters"] == 2 * layer + ends
    assert facts["path"] == {"requested": "kernel", "registered_buffers": 0}
    assert facts["environment"]["packages"]["torch"]


def test_a_trace_has_its_rank_its_steps_its_gemms_and_its_collectives(two):
    for number in (0, 1):
        rows = read(two["ddp"].folder, number)
        assert (rows.rank, rows.world_size) == (number, 2)
        assert annotations(rows) >= STEPS | {"gloo:all_reduce"}
        # Two sequences of 16 tokens: QKV, projection, and both GEMMs of the MLP.
        assert {(32, 64, 192), (32, 64, 64), (32, 64, 256), (32, 256, 64)} <= forward_gemms(rows)


def test_the_same_seed_gives_the_same_losses_bit_for_bit(two):
    losses = two["ddp"].losses
    assert len(losses) == 4 and losses[-1] < losses[0], "training learns"
    assert two["again"].losses == losses
    assert two["again"].files == ["facts_rank0.json", "losses.json"]
    assert two["other"].losses != losses


def test_fsdp_trains_like_ddp_and_gathers_and_scatters(two):
    sharded = two["fsdp"]
    assert sharded.status == [0, 0], sharded.stderr
    # Gradients are summed in fp32 in another order, and four steps of AdamW follow.
    assert sharded.losses == pytest.approx(two["exact"].losses, rel=1e-3)
    assert sharded.facts["parallel"] == "FSDP2"
    assert sharded.facts["parameters"] == two["exact"].facts["parameters"]
    assert "gloo:all_gather" in annotations(read(sharded.folder, 1))
    assert two["ahead"].losses == sharded.losses


def test_gathering_into_registered_buffers_gives_the_same_losses(two):
    run = two["registered"]
    assert run.losses == two["fsdp"].losses
    # Three in turn for the layers, and three for what is outside them.
    assert run.facts["path"]["registered_buffers"] == 6
    assert run.facts["path"]["registered_collectives"] == ["all_gather"]


def test_a_planted_straggler_waits_in_every_step_of_its_rank_alone(two, tmp_path):
    run = two["late"]
    assert run.facts["straggle"] == {"rank": 1, "milliseconds": 100.0}
    assert seconds_of(read(run.folder, 0, "late"), LABEL) == []
    waits = seconds_of(read(run.folder, 1, "late"), LABEL)
    assert len(waits) == 5
    assert min(waits) >= 0.1
    shutil.copytree(run.folder, tmp_path / "256thread" / "nccl_1channels")
    (point,) = analyse_sweep(tmp_path).points
    first, second = point.stragglers
    assert not first.is_straggler
    assert (second.is_straggler, second.lost_in) == (True, LABEL)
    # On a busy machine, the other rank may be late in some of the first steps.
    assert second.since_step in (2, 3, 4)
    assert second.lost_us >= 100_000


def test_one_rank_trains_without_collectives_and_says_so(alone):
    run = alone["plain"]
    assert run.status == [0], run.stderr
    assert "1 rank on cpu, no collectives" in run.stdout[0]
    assert run.facts["parallel"] == "none"
    rows = read(run.folder, 0)
    assert (rows.rank, rows.world_size) == (0, 1)
    assert annotations(rows) >= STEPS
    assert not any(name.startswith("gloo:") for name in annotations(rows))


def test_a_recording_is_repeated_into_further_files(alone):
    assert [name for name in alone["twice"].files if "rank0/" in name] == [
        "torch_profiler/rank0/customer_trace.pt.trace.json.gz",
        "torch_profiler/rank0/customer_trace_02.pt.trace.json.gz",
    ]


def test_a_loss_that_is_not_finite_is_null_and_named(alone):
    run = alone["nan"]
    assert [loss is None for loss in (run.losses[0], run.losses[-1])] == [False, True]
    assert "warning: the loss is not finite in steps " in run.stdout[0]


def test_a_folder_that_cannot_be_written_is_named(alone):
    run = alone["blocked"]
    assert run.status == [3]
    assert "cannot write" in run.stderr[0] and "rank0" in run.stderr[0]


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_work_ends_with_the_reason(alone, name):
    run = alone[name]
    assert (run.status, run.folder.exists()) == ([2], False)
    assert run.stderr[0].startswith("rank 0: error: ")
    assert REFUSED[name][1] in run.stderr[0] and "\nhint: " in run.stderr[0]


TORCHRUN = """
import torch
from torch.distributed import run
from gemmetry.sweeps.workload import _end, main

launcher = run.elastic_launch

def rank(unbuffered, as_module, module, *arguments):
    torch.set_num_threads(1)
    _end(main(arguments))

def forking(config, entrypoint):
    config.start_method = "fork"
    return launcher(config, rank)

run.elastic_launch = forking
run.main()
"""
"""torchrun with ranks that are forks of it, where new ones would import torch again."""


def test_torchrun_reports_the_rank_that_failed(tmp_path, forked, rank_variables):
    (tmp_path / "torch_profiler").mkdir()
    (tmp_path / "torch_profiler" / "rank1").write_text("in the way")
    ended = forked(
        TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "gemmetry.sweeps.workload",
        "--config", "tiny", "--output", str(tmp_path), env=rank_variables,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "2 ranks on cpu, DDP over gloo" in ended.stdout
    assert "rank 1: error: cannot write" in ended.stderr
    assert "StorageError" in ended.stderr
