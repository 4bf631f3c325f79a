"""Parts of the workload that need no training."""

from __future__ import annotations

import json
import os
import sys
from operator import attrgetter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.sweeps.keys import DistributedKeys, SchedulerKeys, load_config
from gemmetry.sweeps.workload import _end, main

pytest.importorskip("torch")

import torch

from gemmetry.sweeps import trainer
from gemmetry.sweeps.trainer import Straggle, explained, whole_file, write_json


@pytest.mark.parametrize("on_gpu", [False, True])
def test_only_with_a_gpu_the_interpreter_is_taken_down(monkeypatch, on_gpu):
    fake = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: on_gpu))
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(os, "_exit", Mock(side_effect=KeyError(3)))
    with pytest.raises(SystemExit if on_gpu else KeyError) as ended:
        _end(3)
    assert ended.value.args == (3,)
    assert on_gpu or os._exit.call_args.args == (3,)


def test_a_mistake_is_found_before_torch_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("RANK", "5")
    assert main(["--output", str(tmp_path), "--override", "model.num_heads=5"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rank 5: error: ") and "model.num_heads 5" in error
    assert "\nhint: " in error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("the GPU is full.\nMore lines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: too much"),
    ],
)
def test_memory_that_runs_out_leads_to_smaller_batches(error):
    with pytest.raises(RequestError, match=r"^too little memory: ") as found, explained():
        raise error
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


@pytest.mark.parametrize(("ranks", "waits"), [(1, []), (2, [trainer.LATER_S])])
def test_what_may_follow_from_another_rank_comes_later(monkeypatch, ranks, waits):
    """Of two ranks that fail in the same second, torchrun quotes the first by number."""
    waited = []
    monkeypatch.setattr(trainer.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(trainer.dist, "get_world_size", lambda: ranks)
    monkeypatch.setattr(trainer.time, "sleep", waited.append)
    with pytest.raises(RuntimeError, match="closed"), explained():
        raise RuntimeError("the connection was closed")
    assert waited == waits
    assert trainer.LATER_S > 1, "torchrun compares whole seconds"
    with pytest.raises(RequestError), explained():
        raise torch.OutOfMemoryError("full")
    assert waited == waits


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "facts.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyError), whole_file(path) as partial:
        partial.write_text("half")
        assert path.read_text() != "half"
        raise KeyError
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(StorageError, match=r"cannot write .*facts\.json/x"):
        write_json(path / "x", {})


def test_the_learning_rate_and_losses_that_are_not_finite():
    factor = trainer.learning_rate(SchedulerKeys(warmup_steps=4, total_steps=12))
    assert [factor(step) for step in (0, 1, 3, 4, 8, 12, 50)] == [0.25, 0.5, 1, 1, 0.5, 0, 0]
    assert trainer.learning_rate(SchedulerKeys(warmup_steps=0, total_steps=2))(0) == 1
    losses = [torch.tensor(value) for value in (0.5, float("nan"), float("inf"))]
    assert trainer.mean_over_ranks(losses, 1) == [0.5, None, None]


def test_straggles():
    assert Straggle.parse("3:2.5") == Straggle(3, 2.5)
    for text in ("", "1", "1:", ":5", "1:0", "1:-2", "-1:5", "1:inf", "1:nan"):
        with pytest.raises(RequestError, match="not of the form RANK:MS"):
            Straggle.parse(text)


PARAMETERS = 1000


def test_the_memory_that_is_needed(monkeypatch):
    """State, batch and what layers keep; FSDP divides the state among the ranks."""
    exact = "training.mixed_precision=none"
    config = load_config("tiny", [exact])
    tokens = 2 * 16
    rest = 2 * tokens * (4 * (32 + 1) + 8 * 4) + tokens * 2 * (6 * 64 + 2 * 256) * 4
    for mode, states in (("ddp", 16), ("fsdp", 4)):
        of_mode = load_config("tiny", [exact, f"distributed.mode={mode}"])
        assert trainer.needed_bytes(of_mode, PARAMETERS, 4) == PARAMETERS * states + rest
    few, many = (load_config("document", [f"training.gradient_accumulation={n}"]) for n in (1, 8))
    assert trainer.needed_bytes(many, 1, 1) < trainer.needed_bytes(few, 1, 1) / 3
    ranks = SimpleNamespace(rank=1, size=2, local_size=2, on_gpu=False)
    needed = 2 * trainer.needed_bytes(config, PARAMETERS, 2)
    monkeypatch.setattr(trainer, "Transformer", lambda keys: None)
    monkeypatch.setattr(trainer, "count_parameters", lambda model: PARAMETERS)
    monkeypatch.setattr(trainer, "free_memory_bytes", Mock(side_effect=[needed, needed - 2]))
    trainer.check_memory(config, ranks)
    with pytest.raises(RequestError, match=r"rank 1 needs at least .* and the host"):
        trainer.check_memory(config, ranks)


FSDP = DistributedKeys(mode="fsdp")
GLOO = DistributedKeys(backend="gloo", mode="fsdp")
SET = ("NCCL_CTA_POLICY", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")


@pytest.fixture
def host(monkeypatch):
    """Two ranks of one host whose torch has GPUs and a recent NCCL."""
    nccl = SimpleNamespace(version=lambda: (2, 28, 9))
    fake = SimpleNamespace(
        version=SimpleNamespace(hip=None), __version__="2.13.0",
        cuda=SimpleNamespace(is_available=lambda: True, nccl=nccl),
    )  # fmt: skip
    monkeypatch.setattr(trainer, "torch", fake)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    for name in SET:
        monkeypatch.setenv(name, "before")  # So that what the test sets is undone.
        monkeypatch.delenv(name)
    return fake


@pytest.mark.parametrize(
    ("path", "variables"),
    [
        ("kernel", {}),
        ("symmetric", dict(zip(SET[1:], "01", strict=True))),
        ("copy_engine", dict(zip(SET, "201", strict=True))),
    ],
)
def test_the_environment_of_a_path(host, path, variables):
    trainer.prepare(path, FSDP)
    assert {name: os.environ[name] for name in SET if name in os.environ} == variables


@pytest.mark.parametrize(
    ("path", "keys", "machine", "words"),
    [
        ("symmetric", GLOO, {}, "gloo"),
        ("copy_engine", DistributedKeys(), {}, "distributed.mode fsdp"),
        ("symmetric", FSDP, {"cuda.nccl.version": lambda: (2, 26, 2)}, "needs NCCL 2.27"),
        ("copy_engine", FSDP, {"cuda.nccl.version": lambda: (2, 27, 5)}, "needs NCCL 2.28"),
        ("symmetric", FSDP, {"__version__": "2.10.1+cu130"}, "torch 2.11, and this is 2.10.1"),
        ("symmetric", FSDP, {"version.hip": "7.0"}, "ROCm"),
        ("symmetric", FSDP, {"cuda.is_available": lambda: False}, "no GPU"),
        ("copy_engine", FSDP, {"WORLD_SIZE": "4"}, "one host"),
        ("symmetric", FSDP, {"WORLD_SIZE": "1"}, "one rank"),
        ("symmetric", FSDP, {"NCCL_CTA_POLICY": "2"}, "requests copy engines"),
    ],
)
def test_what_cannot_use_registered_buffers_is_refused(
    host, monkeypatch, path, keys, machine, words
):
    for name, value in machine.items():
        if name.isupper():
            monkeypatch.setenv(name, value)
        else:
            place, _, attribute = name.rpartition(".")
            setattr(attrgetter(place)(host) if place else host, attribute, value)
    with pytest.raises(RequestError, match=words) as error:
        trainer.prepare(path, keys)
    assert error.value.hint == "Use --path kernel."
    assert "NCCL_NVLS_ENABLE" not in os.environ


@pytest.fixture
def gather():
    """An all-gather whose symmetric memory is plain memory."""
    found = object.__new__(trainer.RegisteredAllGather)
    found.calls, found.registrations, found.windows = [], [], {}
    found._slots, found._buffers = 3, {}
    found._memory = SimpleNamespace(
        empty=torch.empty, rendezvous=lambda tensor, group: found.registrations.append(group)
    )
    found._gather = lambda *tensors, **how: found.calls.append((*tensors, how["async_op"]))
    return found


def test_buffers_of_one_size_are_used_in_turn(gather):
    def allocate(count: int, size: int) -> list[int]:
        given = {"dtype": torch.float32, "device": "cpu"}
        return [gather.allocate((size,), **given).data_ptr() for _ in range(count)]

    first, others = allocate(3, 8), allocate(2, 16)
    assert len({*first, *others}) == 5
    assert allocate(7, 8) == [*first, *first, first[0]]
    assert allocate(1, 16)[0] not in others


def test_a_buffer_is_registered_once(gather):
    outputs, part = [torch.zeros(4), torch.zeros(4)], torch.zeros(2)
    for output in (*outputs, outputs[0]):
        gather(output, part, SimpleNamespace(group_name="7"), async_op=True)
    assert gather.registrations == ["7", "7"]
    assert len(gather.windows) == 2
    assert gather.calls[2] == (outputs[0], part, True)
