"""One collective as recorded by all ranks: skews, waits, latency and bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from gemmetry.traces.collectives.bandwidth import (
    ELEMENT_BYTES,
    bus_factor,
    exchanged_elements,
    gigabytes_per_second,
)
from gemmetry.traces.collectives.summary import POINT_TO_POINT, Collective, Group


@dataclass(frozen=True)
class Matched:
    """One collective as recorded by all traced ranks of its group."""

    group: Group | None
    members: tuple[tuple[int, Collective], ...]
    """(rank, kernel) pairs, by rank."""
    missing: tuple[int, ...]
    """Ranks of the group without a file; times are those of the other ranks."""
    is_complete: bool = False
    """Every rank of its group has a file. Otherwise the latency is an upper bound and bandwidths
    are lower bounds, as a rank without a file may have been last."""

    @property
    def is_lone(self) -> bool:
        """An unmatched kernel of one rank: its duration includes the wait for the others, so that
        it gives neither latency nor bandwidth."""
        return len(self.members) == 1

    @cached_property
    def op(self) -> str | None:
        """The operation; ``send_recv`` for a send with its receive."""
        if self.is_lone:
            return self.members[0][1].op
        ops = {one.op for _, one in self.members if one.op}
        return "send_recv" if ops & set(POINT_TO_POINT) else next(iter(ops), None)

    @cached_property
    def dtype(self) -> str | None:
        return next((one.dtype for _, one in self.members if one.dtype), None)

    @cached_property
    def elements(self) -> int | None:
        """Elements of the whole message; of the largest one where ranks differ."""
        recorded = [one.elements for _, one in self.members if one.elements is not None]
        return max(recorded, default=None)

    @property
    def bytes(self) -> int | None:
        """Size of the whole message."""
        size = ELEMENT_BYTES.get(self.dtype or "")
        return None if size is None or self.elements is None else size * self.elements

    @property
    def group_size(self) -> int | None:
        """Size of its group; 2 for a send with its receive. Where no trace records it, it follows
        from input and output of an all-gather or reduce-scatter."""
        if self.op == "send_recv":
            return 2
        if self.group and self.group.size:
            return self.group.size
        for _, one in self.members:
            counts = (one.in_elements, one.out_elements)
            part, whole = counts if self.op == "all_gather" else counts[::-1]
            if self.op in ("all_gather", "reduce_scatter") and part and whole:
                return None if whole % part else whole // part
        return None

    @property
    def is_group_inferred(self) -> bool:
        """No trace records the group: all ranks of the job took part."""
        groups = (one.group for _, one in self.members if one.group)
        return self.is_complete and self.op != "send_recv" and not any(
            group.ranks or group.size for group in groups
        )  # fmt: skip

    @property
    def start_ns(self) -> int:
        """Earliest start on any rank."""
        return min(one.start_ns for _, one in self.members)

    @property
    def latency_ns(self) -> int:
        """Shortest duration on any rank: that of the rank that was last, which did not wait."""
        return min(one.duration_ns for _, one in self.members)

    def skews_ns(self, offsets: Mapping[int, int] | None = None) -> tuple[int, int]:
        """Latest minus earliest start, and latest minus earliest end; `offsets` are added to the
        ranks' clocks."""
        starts = self._moments(offsets)
        ends = [
            start + one.duration_ns for start, (_, one) in zip(starts, self.members, strict=True)
        ]
        return max(starts) - min(starts), max(ends) - min(ends)

    def last_rank(self, offsets: Mapping[int, int] | None = None) -> int:
        """The rank with the latest start; the lowest of several."""
        starts = self._moments(offsets)
        return self.members[starts.index(max(starts))][0]

    def waits_ns(self, offsets: Mapping[int, int] | None = None) -> dict[int, int]:
        """Latest start minus own start, by rank."""
        starts = self._moments(offsets)
        ranks = (rank for rank, _ in self.members)
        return {rank: max(starts) - start for rank, start in zip(ranks, starts, strict=True)}

    def _moments(self, offsets: Mapping[int, int] | None) -> list[int]:
        given = offsets or {}
        return [one.start_ns + given.get(rank, 0) for rank, one in self.members]

    @property
    def algorithm_bandwidth(self) -> float | None:
        """S / latency in 10⁹ bytes/s; None where no trace records the size, where several kernels
        share it, and for an unmatched kernel."""
        if self.is_lone or any(one.is_shared for _, one in self.members):
            return None
        return gigabytes_per_second(self.bytes, self.latency_ns)

    @property
    def bus_bandwidth(self) -> float | None:
        """Bandwidth of the busiest link of a GPU, in 10⁹ bytes/s.

        For an all-to-all with unequal parts: the most that one rank sends to or receives from
        others, divided by the latency (param's definition, which equals nccl-tests' for equal
        parts).
        """
        algorithm, size = self.algorithm_bandwidth, self.group_size
        if algorithm is None:
            return None
        element = ELEMENT_BYTES.get(self.dtype or "")
        if self.op == "all_to_all" and size and element:
            return gigabytes_per_second(self._most_exchanged(size) * element, self.latency_ns)
        factor = bus_factor(self.op, size)
        return None if factor is None else algorithm * factor

    @property
    def is_above_link(self) -> bool:
        """Whether the bus bandwidth exceeds what the links of a GPU transfer in one direction:
        where the switch reduces or multicasts, they transfer less than it states."""
        links = [one.link_gbps for _, one in self.members if one.link_gbps is not None]
        return bool(links) and (self.bus_bandwidth or 0.0) > min(links)

    def _most_exchanged(self, size: int) -> float:
        most = 0.0
        ranks = self.group.ranks if self.group else ()
        for rank, one in self.members:
            index = ranks.index(rank) if rank in ranks else None
            for elements, splits in (
                (one.in_elements, one.in_splits), (one.out_elements, one.out_splits),
            ):  # fmt: skip
                if elements is not None:
                    most = max(most, exchanged_elements(elements, splits, index, size))
        return most
