"""Makes synthetic sweeps: Kineto traces of a simulated training run, a few KB each.

In each layer of a step, every rank starts an all-gather and runs the GEMMs next to it. After the
all-gather, the same GEMMs run alone, then an element-wise kernel. A collective begins on each rank
when the rank gets to it, and ends on all ranks together: ranks wait for the slowest one. Which GEMM
is slowed by how much, who is late, and which settings the kernels show is chosen by
:class:`MadePoint`; the analysis has to find it.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE_NS = 1_790_000_000_000_000_000
"""Origin of the times, in ns since 1970."""


@dataclass(frozen=True)
class MadeGemm:
    """A GEMM of every layer; sizes as in ``aten::mm``, duration alone in ns."""

    kernel: str
    m: int
    n: int
    k: int
    duration_ns: int


UP = MadeGemm("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", 1024, 4096, 1024, 100_000)
DOWN = MadeGemm("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 1024, 1024, 4096, 90_000)
COLLECTIVE = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)"
SLEEP = "spin_kernel(long)"


@dataclass(frozen=True, kw_only=True)
class MadePoint:
    """One point of a synthetic sweep, and what is planted in it."""

    threads: int = 256
    channels: int = 8
    axes: Mapping[str, str] = field(default_factory=dict)
    repeat: int = 1
    ranks: int = 2
    steps: int = 3
    layers: int = 6
    slowdown: Mapping[str, float] = field(default_factory=dict)
    """Kernel -> factor of its duration next to the all-gather."""
    comm_ns: int = 260_000
    """Duration of the all-gather once all ranks have begun it."""
    is_overlapped: bool = True
    """Whether GEMMs run next to the all-gather at all."""
    has_control: bool = True
    """Whether the GEMMs also run alone."""
    delay_ns: Mapping[int, int] = field(default_factory=dict)
    """Rank -> duration of a sleeping kernel in each layer."""
    delayed_from: int = 0
    """Index of the first step with the delay."""
    late_ns: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Rank -> for each layer, how late its host submits the work."""
    rank_factor: Mapping[int, float] = field(default_factory=dict)
    """Rank -> factor of the duration of :data:`DOWN`."""
    seen_channels: int | None = None
    """Grid of the collectives where it is not `channels`."""
    seen_threads: int | None = None
    """Block of the collectives where it is not `threads` + 32."""
    elements: int = 1 << 24
    """Of the all-gather's whole message."""
    noise: float = 0.005
    """Relative spread of durations."""
    nccl: str = "2.28.9"
    world_size: int | None = None
    """As recorded, where it is not `ranks`."""
    steps_of: Mapping[int, int] = field(default_factory=dict)
    """Rank -> number of steps in its trace, where it is not `steps`."""
    missing: Sequence[int] = ()
    """Ranks without a trace."""
    cut: Sequence[int] = ()
    """Ranks whose trace ends in the middle."""
    facts: Mapping[str, Any] | None = None
    """Content of ``point.json``; None: there is no such file."""
    log: str | None = None


def write_sweep(
    folder: Path,
    points: Sequence[MadePoint],
    *,
    file: str = "torch_profiler/rank{rank}/trace.pt.trace.json.gz",
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """Write the sweep's folder; `file` places each rank's trace below its point."""
    for point in points:
        place = point_folder(folder, point)
        place.mkdir(parents=True)
        for rank, text in enumerate(point_traces(point)):
            if rank in point.missing:
                continue
            path = place / file.format(rank=rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            data = text.encode()
            data = data[: len(data) * 2 // 3] if rank in point.cut else data
            path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        if point.facts is not None:
            (place / "point.json").write_text(json.dumps(point.facts))
        if point.log is not None:
            (place / "run_output.log").write_text(point.log)
    if manifest is not None:
        (folder / "sweep.json").write_text(json.dumps(manifest))
    return folder


def point_folder(folder: Path, point: MadePoint) -> Path:
    """Where the point is in the sweep's folder."""
    place = folder / f"{point.threads}thread" / f"nccl_{point.channels}channels"
    for name, value in point.axes.items():
        place = place / f"{name}={value}"
    return place / f"repeat_{point.repeat:02d}" if point.repeat > 1 else place


def point_traces(point: MadePoint) -> list[str]:
    """The trace of each rank, as JSON."""
    seed = f"{point.threads} {point.channels} {sorted(point.axes.items())} {point.repeat}"
    ranks = [_Rank(point, rank, random.Random(f"{seed} {rank}")) for rank in range(point.ranks)]
    for step in range(point.steps):
        for one in ranks:
            one.begin_step()
        for layer in range(point.layers):
            for number, late in point.late_ns.items():
                ranks[number].now += late[layer]
            _layer(point, ranks, step)
        for one in ranks:
            one.end_step(step)
    return [one.text() for one in ranks]


def _layer(point: MadePoint, ranks: Sequence[_Rank], step: int) -> None:
    for one in ranks:
        delay = point.delay_ns.get(one.number, 0)
        if delay and step >= point.delayed_from:
            one.kernel(SLEEP, delay, operator="aten::_sleep")
    starts = [one.now for one in ranks]
    end = max(starts) + point.comm_ns
    for one, start in zip(ranks, starts, strict=True):
        one.collective(start, end - start)
        if point.is_overlapped:
            one.gemms(next_to_collective=True)
        one.now = max(one.now, end)
        if point.has_control:
            one.gemms(next_to_collective=False)
        one.kernel(ELEMENTWISE, 20_000, operator="aten::add")


class _Rank:
    """The trace of one rank in the making; times in ns."""

    def __init__(self, point: MadePoint, number: int, noise: random.Random) -> None:
        self.point, self.number, self.noise = point, number, noise
        self.now = 1_000_000
        self.host = 0
        self.step_begin = 0
        self.launches = 0
        self.collectives = 0
        self.events: list[dict[str, Any]] = []
        self.of_steps: list[list[dict[str, Any]]] = []

    def begin_step(self) -> None:
        self.host = self.step_begin = self.now - 500_000
        self.events = []

    def end_step(self, step: int) -> None:
        name = f"ProfilerStep#{step + 3}"
        begin = self.step_begin
        self._add("user_annotation", name, begin, self.host - begin + 100, 1, {})
        self.now += 600_000  # The host submits the next step's work; the GPU is idle.
        self.of_steps.append(self.events)

    def gemms(self, *, next_to_collective: bool) -> None:
        for gemm in (UP, DOWN):
            duration = gemm.duration_ns * (
                self.point.slowdown.get(gemm.kernel, 1.0) if next_to_collective else 1.0
            )
            if gemm is DOWN:
                duration *= self.point.rank_factor.get(self.number, 1.0)
            dims = [[gemm.m, gemm.k], [gemm.k, gemm.n]]
            self.kernel(gemm.kernel, round(duration), operator="aten::mm", dims=dims)

    def kernel(self, name: str, duration: int, *, operator: str, dims: Any = None) -> None:
        duration = round(duration * (1 + self.point.noise * self.noise.uniform(-1, 1)))
        self._launch(operator, dims)
        self._gpu(name, self.now, duration, 7, [64, 1, 1], [384, 1, 1], {})
        self.now += duration + 1000

    def collective(self, start: int, duration: int) -> None:
        point = self.point
        self._launch("record_param_comms", None)
        self.collectives += 1
        recorded = {
            "Collective name": "_allgather_base", "In msg nelems": point.elements // point.ranks,
            "Out msg nelems": point.elements, "Group size": point.ranks, "dtype": "BFloat16",
            "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(point.ranks))), "Seq": self.collectives,
        }  # fmt: skip
        channels = point.channels if point.seen_channels is None else point.seen_channels
        threads = point.threads + 32 if point.seen_threads is None else point.seen_threads
        self._gpu(COLLECTIVE, start, duration, 24, [channels, 1, 1], [threads, 1, 1], recorded)

    def _launch(self, operator: str, dims: Any) -> None:
        self.launches += 1
        args: dict[str, Any] = {"External id": self.launches}
        if dims is not None:
            args |= {
                "Input Dims": dims, "Input type": ["c10::BFloat16"] * 2,
                "Input Strides": [[row[1], 1] for row in dims], "Concrete Inputs": ["", ""],
            }  # fmt: skip
        self._add("cpu_op", operator, self.host, 900, 1, args)
        call = {"correlation": self.launches, "External id": self.launches}
        self._add("cuda_runtime", "cudaLaunchKernel", self.host + 100, 500, 1, call)
        self.host += 1000

    def _gpu(
        self, name: str, start: int, duration: int, stream: int, grid: Any, block: Any, more: Any
    ) -> None:
        args = {"device": 0, "stream": stream, "correlation": self.launches, "grid": grid,
                "block": block, "External id": self.launches, **more}  # fmt: skip
        self._add("kernel", name, start, duration, stream, args)

    def _add(
        self, category: str, name: str, start: int, duration: int, thread: int, args: Any
    ) -> None:
        process = 0 if category == "kernel" else 1
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
             "ts": start / 1000, "dur": duration / 1000, "args": args}
        )  # fmt: skip

    def text(self) -> str:
        point = self.point
        world = point.ranks if point.world_size is None else point.world_size
        kept = self.of_steps[: point.steps_of.get(self.number, point.steps)]
        distributed = {
            "backend": "nccl", "rank": self.number, "world_size": world, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world}],
            "nccl_version": point.nccl,
        }  # fmt: skip
        return json.dumps({
            "schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "distributedInfo": distributed,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
            "traceEvents": [event for events in kept for event in events],
        })  # fmt: skip
