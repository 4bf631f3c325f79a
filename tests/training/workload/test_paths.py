from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.training.keys import DistributedKeys

pytest.importorskip("torch")

from gemmetry.sweeps.workload import model as paths

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


def test_a_torch_without_windows_is_refused(host):
    host.__version__ = "2.10.1+cu130"
    assert "needs torch 2.11, and this is 2.10.1+cu130" in refusal("symmetric")
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


@pytest.fixture
def gather():
    """An all-gather whose symmetric memory is plain memory."""
    torch = pytest.importorskip("torch")
    found = object.__new__(paths.RegisteredAllGather)
    found.calls, found.registrations, found.windows = [], [], {}
    found._slots, found._buffers = 3, {}
    found._memory = SimpleNamespace(
        empty=torch.empty, rendezvous=lambda tensor, group: found.registrations.append(group)
    )
    found._gather = lambda *tensors, **how: found.calls.append((*tensors, how["async_op"]))
    return found


def test_buffers_of_one_size_are_used_in_turn(gather):
    import torch

    def allocate(size: int) -> int:
        return gather.allocate((size,), dtype=torch.float32, device="cpu").data_ptr()

    first = [allocate(8) for _ in range(3)]
    others = [allocate(16) for _ in range(2)]
    assert len({*first, *others}) == 5
    assert [allocate(8) for _ in range(7)] == [*first, *first, first[0]]
    assert allocate(16) not in others


def test_a_buffer_is_registered_once(gather):
    import torch

    outputs, part = [torch.zeros(4), torch.zeros(4)], torch.zeros(2)
    for output in (*outputs, outputs[0]):
        gather(
            output_tensor=output, input_tensor=part, group=SimpleNamespace(group_name="7"),
            async_op=True,
        )  # fmt: skip
    assert gather.registrations == ["7", "7"]
    assert len(gather.windows) == 2
    assert gather.calls[2] == (outputs[0], part, True)
