from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.training.config import load_config

pytest.importorskip("torch")

from gemmetry.sweeps.workload import run as memory

PARAMETERS = 1000


def test_the_bound_adds_state_batch_and_what_layers_keep():
    config = load_config("tiny", ["training.mixed_precision=none"])
    tokens = 2 * 16
    batch = 2 * tokens * (4 * (32 + 1) + 8 * 4)
    kept = tokens * 2 * (6 * 64 + 2 * 256) * 4
    assert memory.needed_bytes(config, PARAMETERS, 2) == PARAMETERS * 16 + batch + kept


def test_fsdp_divides_the_state_among_the_ranks():
    ddp, fsdp = (load_config("tiny", [f"distributed.mode={mode}"]) for mode in ("ddp", "fsdp"))
    saved = memory.needed_bytes(ddp, PARAMETERS, 4) - memory.needed_bytes(fsdp, PARAMETERS, 4)
    assert saved == PARAMETERS * 16 - PARAMETERS * 16 // 4


def test_micro_batches_that_are_smaller_need_less():
    few, many = (load_config("document", [f"training.gradient_accumulation={n}"]) for n in (1, 8))
    assert memory.needed_bytes(many, PARAMETERS, 1) < memory.needed_bytes(few, PARAMETERS, 1) / 3


def test_ranks_of_one_host_share_its_memory(monkeypatch):
    config = load_config("tiny")
    ranks = SimpleNamespace(rank=1, size=2, local_size=2, on_gpu=False)
    needed = memory.needed_bytes(config, PARAMETERS, 2)
    monkeypatch.setattr(memory, "Transformer", lambda keys: None)
    monkeypatch.setattr(memory, "count_parameters", lambda model: PARAMETERS)
    monkeypatch.setattr(memory, "free_memory_bytes", lambda: 2 * needed)
    memory.check_memory(config, ranks)
    monkeypatch.setattr(memory, "free_memory_bytes", lambda: 2 * needed - 2)
    with pytest.raises(RequestError, match=r"rank 1 needs at least .* and the host"):
        memory.check_memory(config, ranks)
