"""Groups of collectives, and the launches that a setting is judged on."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.nccl_settings import collective_kinds

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TREE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"
SYMMETRIC = "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)"
SENDS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
COPY = "Memcpy PtoP (Device -> Device)"


def test_the_largest_messages_decide_and_without_sizes_all_launches(facts, launch):
    (kind,) = collective_kinds(
        [facts(launch(grid=2, size=1 << 10), launch(grid=8), launch(grid=8, size=(1 << 26) - 4),
               launch(grid=1, size=None))]
    )  # fmt: skip
    assert (kind.channels, kind.judged, kind.launches, kind.unlike) == (8, 2, 4, 0)
    assert kind.bytes == 1 << 26
    (kind,) = collective_kinds([facts(*[launch(grid=n, size=None) for n in (8, 8, 2)])])
    assert (kind.channels, kind.judged, kind.unlike, kind.bytes) == (8, 3, 1, None)


def test_kinds_of_all_ranks_by_time(facts, launch):
    found = collective_kinds(
        [facts(launch(duration=10)), facts(launch(REDUCE, op="all_reduce", duration=30), rank=1)]
    )
    assert [kind.operation for kind in found] == ["all_reduce", "all_gather"]
    assert [kind.is_no_tree for kind in found] == [True, False]
    assert found[0].label == "all-reduce of 64 MiB"


@pytest.mark.parametrize(
    ("kernel", "op", "device", "library"),
    [
        (REDUCE, "all_reduce", "NVIDIA H200", "nccl"),
        (REDUCE, "all_reduce", "AMD Instinct MI300X", "rccl"),
        (SYMMETRIC, "all_gather", "NVIDIA H200", "symmetric"),
        (COPY, "copy", "NVIDIA H200", "copy"),
    ],
)
def test_libraries(facts, launch, kernel, op, device, library):
    (kind,) = collective_kinds([facts(launch(kernel, op=op), device=device)])
    assert kind.library == library


def test_sends_and_the_host(facts, launch):
    (sends,) = collective_kinds([facts(launch(SENDS, op="all_to_all"))])
    assert sends.is_point_to_point
    (host,) = collective_kinds([facts(launch("gloo:all_reduce", grid=0, block=0), on_gpu=False)])
    assert (host.library, host.channels, host.block) == ("host", None, None)
