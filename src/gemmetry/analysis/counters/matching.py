"""Which kernels of two reports of counters are compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmetry.counters.diagnosis.model import LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline, roofline_of
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.kernel_names import classify
from gemmetry.kernel_names.kinds import KernelKind

SAME_WORK = 0.1
"""Counted operations of one GEMM differ by less than this: tiles of other sizes compute other
amounts of padding."""


@dataclass(frozen=True)
class Variant:
    """The launches of one kernel with one grid and block in a report."""

    launches: Sequence[ProfiledLaunch]
    diagnoses: Sequence[LaunchDiagnosis]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.launches[0].name

    @cached_property
    def kind(self) -> KernelKind:
        """What it computes, as far as the name shows."""
        return classify(self.name).kind

    @cached_property
    def middle(self) -> int:
        """Position of the launch of median duration."""
        times = [one.duration_ns or 0.0 for one in self.launches]
        return sorted(range(len(times)), key=times.__getitem__)[len(times) // 2]

    @property
    def diagnosis(self) -> LaunchDiagnosis:
        """Of the launch of median duration."""
        return self.diagnoses[self.middle]

    @cached_property
    def roofline(self) -> LaunchRoofline | None:
        """Of the launch of median duration."""
        return roofline_of(self.launches[self.middle])

    @property
    def operations(self) -> float | None:
        """Those counted; None where they were not."""
        return None if self.roofline is None else self.roofline.operations


@dataclass(frozen=True, slots=True)
class Match:
    """Two variants that are compared."""

    first: Variant
    second: Variant
    reason: str
    """What they have in common."""


def variants_of(
    launches: Sequence[ProfiledLaunch], diagnoses: Sequence[LaunchDiagnosis]
) -> list[Variant]:
    """The launches grouped by name, grid and block, in the order of their first ones."""
    groups: dict[Hashable, list[int]] = {}
    for place, one in enumerate(launches):
        groups.setdefault((one.name, one.info.grid, one.info.block), []).append(place)
    return [
        Variant([launches[place] for place in places], [diagnoses[place] for place in places])
        for places in groups.values()
    ]


def match_variants(
    first: Sequence[Variant], second: Sequence[Variant]
) -> tuple[list[Match], list[Variant], list[Variant]]:
    """Pairs, and what only the first and only the second report has.

    The same name with the same grid comes first, then the same name with the same work, the same
    name in order, GEMMs with the same work, and at last kernels of the same kind in order where
    both reports have as many of them left.
    """
    left, right = list(first), list(second)
    found: list[Match] = []

    def pair(reason: str, fits: Callable[[Variant, Variant], bool]) -> None:
        for one in list(left):
            other = next((candidate for candidate in right if fits(one, candidate)), None)
            if other is not None:
                found.append(Match(one, other, reason))
                left.remove(one)
                right.remove(other)

    pair("the same name and grid", lambda a, b: _key(a) == _key(b))
    pair("the same name and work", lambda a, b: a.name == b.name and has_same_work(a, b) is True)
    pair("the same name", lambda a, b: a.name == b.name)
    pair("GEMMs with the same work", lambda a, b: (
        a.kind is b.kind is KernelKind.GEMM and has_same_work(a, b) is True
    ))  # fmt: skip
    for kind in dict.fromkeys(one.kind for one in left):
        count = sum(one.kind is kind for one in left)
        if count == sum(one.kind is kind for one in right):
            pair("the order of the launches", lambda a, b, kind=kind: a.kind is b.kind is kind)  # type: ignore[misc]
    order = {id(one): place for place, one in enumerate(first)}
    return sorted(found, key=lambda match: order[id(match.first)]), left, right


def has_same_work(first: Variant, second: Variant) -> bool | None:
    """Whether their operations agree within :data:`SAME_WORK`; None where they were not counted."""
    a, b = first.operations, second.operations
    if not a or not b:
        return None
    return abs(a - b) <= SAME_WORK * max(a, b)


def _key(variant: Variant) -> Hashable:
    info = variant.launches[0].info
    return (info.name, info.grid, info.block)
