"""Facts of traces with chosen communication, without files."""

from __future__ import annotations

import msgspec
import pytest

from gemmetry.sweeps.folder import Point
from gemmetry.sweeps.ranks import CommunicationKernel, GemmInstances, RankFacts
from gemmetry.sweeps.rows import SweepConfiguration
from gemmetry.traces.collectives.summary import Collective, Group

ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def make_launch(
    kernel=ALL_GATHER, *, op="all_gather", grid=8, block=288, size=1 << 26, start=0, duration=1000,
    ranks=4, step=0, **chosen,
):  # fmt: skip
    """One kernel, of `size` bytes; None: the trace records none."""
    collective = Collective(
        **{
            "row": 0, "op": op, "dtype": None if size is None else "Byte", "elements": size,
            "in_elements": None, "out_elements": size,
            "group": Group("0", tuple(range(ranks)), ranks), "algorithm": None,
            "protocol": None, "source": "kernel", "name": kernel[:60], "stream": 24, "device": 0,
            "start_ns": start, "duration_ns": duration, **chosen,
        }
    )  # fmt: skip
    return CommunicationKernel(
        collective=collective, kernel=kernel, grid=(grid, 1, 1), block=(block, 1, 1), step=step
    )


def make_facts(*launches, rank=0, device="NVIDIA H200", on_gpu=True, nccl="2.28.9", **chosen):
    """The facts of one rank."""
    made = RankFacts(
        file=f"rank{rank}.json", rank=rank, rank_source="trace", world_size=4, job=None, host="a",
        device=device, on_gpu=on_gpu, versions={"nccl_version": nccl} if nccl else {},
        base_ns=0, span=(0, 1), partial=False, problems=(), times={}, steps=(),
        gemm_kinds=(), gemms=GemmInstances(), communication=launches,
    )  # fmt: skip
    return msgspec.structs.replace(made, **chosen) if chosen else made


@pytest.fixture
def launch():
    return make_launch


@pytest.fixture
def facts():
    return make_facts


@pytest.fixture
def point(tmp_path):
    def make(threads=256, channels=8, path=None, **axes):
        configuration = SweepConfiguration(threads, channels, tuple(axes.items()))
        recorded = {} if path is None else {"path": path}
        return Point(configuration=configuration, folder=tmp_path, facts=recorded)

    return make
