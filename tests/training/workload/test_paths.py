from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.training.keys import DistributedKeys

pytest.importorskip("torch")

from gemmetry.training.workload import paths

FSDP = DistributedKeys(mode="fsdp")
SET = ("NCCL_CTA_POLICY", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")


@pytest.fixture
def host(monkeypatch):
    """Two ranks of one host whose torch has GPUs and a recent NCCL."""
    fake = SimpleNamespace(
        version=SimpleNamespace(hip=None),
        cuda=SimpleNamespace(
            is_available=lambda: True, nccl=SimpleNamespace(version=lambda: (2, 28, 9))
        ),
        __version__="2.13.0",
    )
    monkeypatch.setattr(paths, "torch", fake)
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for name in SET:
        monkeypatch.setenv(name, "before")  # So that what the test sets is undone.
        monkeypatch.delenv(name)
    return fake


def refusal(path: str, distributed: DistributedKeys = FSDP) -> str:
    with pytest.raises(RequestError) as error:
        paths.prepare(path, distributed)
    assert error.value.hint == "Use --path kernel."
    return error.value.message


def environment() -> dict[str, str]:
    return {name: paths.os.environ[name] for name in SET if name in paths.os.environ}


def test_kernels_need_nothing(host):
    paths.prepare("kernel", DistributedKeys(backend="gloo"))
    assert environment() == {}


def test_symmetric_memory_is_used_without_multicast(host):
    paths.prepare("symmetric", FSDP)
    assert environment() == {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def test_copy_engines_need_the_policy_of_zero_ctas(host, monkeypatch):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    paths.prepare("copy_engine", FSDP)
    assert environment() == {
        "NCCL_CTA_POLICY": "2",
        "NCCL_NVLS_ENABLE": "1",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    }


def test_what_cannot_use_registered_buffers_is_refused(host):
    assert "gloo" in refusal("symmetric", DistributedKeys(backend="gloo", mode="fsdp"))
    assert "distributed.mode fsdp" in refusal("copy_engine", DistributedKeys())
    assert environment() == {}


@pytest.mark.parametrize(
    ("path", "version", "words"),
    [("symmetric", (2, 26, 2), "needs NCCL 2.27"), ("copy_engine", (2, 27, 5), "needs NCCL 2.28")],
)
def test_an_older_nccl_is_refused(host, path, version, words):
    host.cuda.nccl.version = lambda: version
    assert words in refusal(path)


def test_a_torch_without_windows_is_refused(host, monkeypatch):
    memory = pytest.importorskip("torch.distributed._symmetric_memory")
    monkeypatch.delattr(memory, "get_mem_pool", raising=False)
    assert "torch 2.13.0 cannot allocate" in refusal("symmetric")
    host.version.hip = "7.0"
    assert "ROCm" in refusal("symmetric")
    host.version.hip, host.cuda.is_available = None, lambda: False
    assert "no GPU" in refusal("symmetric")


def test_ranks_that_copy_engines_cannot_reach_are_refused(host, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "one host" in refusal("copy_engine")
    paths.prepare("symmetric", FSDP)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "one rank" in refusal("symmetric")


def test_a_policy_that_contradicts_the_path_is_refused(host, monkeypatch):
    monkeypatch.setenv("NCCL_CTA_POLICY", "2")
    assert "requests copy engines" in refusal("symmetric")


def test_the_gather_registers_its_output_and_counts_distinct_buffers():
    torch = pytest.importorskip("torch")
    registered, gathered = [], []
    gather = object.__new__(paths.RegisteredAllGather)
    gather._memory = SimpleNamespace(rendezvous=lambda t, group: registered.append((t, group)))
    gather._gather = lambda *tensors, **how: gathered.append((tensors, how))
    gather.windows = set()
    outputs, part = [torch.zeros(4), torch.zeros(4)], torch.zeros(2)
    for output in (*outputs, outputs[0]):
        gather(output, part, SimpleNamespace(group_name="7"), async_op=True)
    assert [group for _, group in registered] == ["7"] * 3
    assert len(gather.windows) == 2
    assert gathered[0][0] == (outputs[0], part)
    assert gathered[0][1]["async_op"] is True
