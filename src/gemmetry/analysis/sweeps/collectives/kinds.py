"""The collectives of a point in groups that the library runs in one way, with their launch sizes.

A setting is judged on the largest messages of a group, as small ones use fewer channels and
threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmetry.analysis.sweeps.model import CommunicationKernel, RankFacts
from gemmetry.domain.units import format_memory
from gemmetry.kernel_names import classify

COPY = "copy"
"""The operation of a copy between GPUs, and the library of such groups."""
HOST = "host"
"""The library of collectives that the host runs, as gloo does."""

_SPECIALISED = ("all_reduce", "reduce_scatter", "reduce")
"""Collectives whose kernel's name distinguishes trees from all other algorithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveKind:
    """Collectives of one point with the same operation, algorithm and protocol."""

    operation: str | None
    algorithm: str | None
    """None where the kernel's name leaves it open, like `protocol`."""
    protocol: str | None
    library: str
    """``nccl``, ``rccl``, ``symmetric`` (NCCL's kernels for symmetric memory), :data:`COPY`,
    :data:`HOST`, or the family of another library's kernels."""
    is_no_tree: bool = False
    """The kernel's name excludes the tree."""
    is_point_to_point: bool = False
    """A kernel of sends and receives, which also implements all-to-alls."""
    launches: int
    """Over all ranks."""
    duration_ns: int
    """Of all launches together."""
    bytes: int | None = None
    """The largest message; None where no trace records one."""
    ranks: int | None = None
    """Size of the largest group."""
    judged: int = 0
    """Number of launches with messages more than half as large as the largest one; of all where
    no size is recorded."""
    channels: int | None = None
    """The most frequent grid.x among those; None where it is not recorded."""
    block: int | None = None
    """The most frequent block.x among those."""
    unlike: int = 0
    """Number of those with another grid or block."""

    @property
    def label(self) -> str:
        """``all-gather of 64 MiB``, as far as it is known."""
        name = (self.operation or "a collective").replace("_", "-")
        return name if self.bytes is None else f"{name} of {format_memory(self.bytes)}"


def collective_kinds(ranks: Iterable[RankFacts]) -> list[CollectiveKind]:
    """The groups over all ranks of a point, those with the most time first."""
    groups: dict[_Key, list[CommunicationKernel]] = {}
    for facts in ranks:
        is_amd = _is_amd(facts.device)
        for one in facts.communication:
            groups.setdefault(_key(one, is_amd=is_amd, on_gpu=facts.on_gpu), []).append(one)
    found = [_kind(key, ones) for key, ones in groups.items()]
    return sorted(found, key=lambda kind: -kind.duration_ns)


_Key = tuple[str | None, str | None, str | None, str, bool, bool]


def _is_amd(device: str) -> bool:
    return device.startswith("AMD") or " MI" in f" {device}"


def _key(one: CommunicationKernel, *, is_amd: bool, on_gpu: bool) -> _Key:
    collective = one.collective
    if collective.op == COPY or not on_gpu:
        return collective.op, None, None, COPY if on_gpu else HOST, False, False
    name = classify(one.kernel)
    library = name.family
    if name.algorithm == "symmetric":
        library = "symmetric"
    elif library == "nccl" and is_amd:
        library = "rccl"
    is_no_tree = name.algorithm == "ring" and name.collective in _SPECIALISED
    is_point_to_point = name.collective == "send_recv"
    return (collective.op, collective.algorithm, collective.protocol, library, is_no_tree,
            is_point_to_point)  # fmt: skip


def _kind(key: _Key, ones: Sequence[CommunicationKernel]) -> CollectiveKind:
    operation, algorithm, protocol, library, is_no_tree, is_point_to_point = key
    sizes = [one.collective.bytes for one in ones]
    largest = max((size for size in sizes if size is not None), default=None)
    judged = [
        one
        for one, size in zip(ones, sizes, strict=True)
        if largest is None or (size is not None and 2 * size > largest)
    ]
    launches = Counter((one.grid[0], one.block[0]) for one in judged)
    (channels, block), alike = max(launches.items(), key=lambda item: (item[1], item[0]))
    groups = [one.collective.group.size or 0 for one in ones if one.collective.group is not None]
    return CollectiveKind(
        operation=operation,
        algorithm=algorithm,
        protocol=protocol,
        library=library,
        is_no_tree=is_no_tree,
        is_point_to_point=is_point_to_point,
        launches=len(ones),
        duration_ns=sum(one.collective.duration_ns for one in ones),
        bytes=largest,
        ranks=max(groups, default=0) or None,
        judged=len(judged),
        channels=channels or None,
        block=block or None,
        unlike=len(judged) - alike,
    )
