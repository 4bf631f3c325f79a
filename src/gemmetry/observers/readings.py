"""Collects an observer's readings during a round and computes their medians."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping


class Readings:
    """Numbers by name of a ``Telemetry`` field, and the observed throttle reasons."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, list[float]] = defaultdict(list)
        self._reasons: set[str] = set()

    def clear(self) -> None:
        self._numbers.clear()
        self._reasons.clear()

    def add(self, name: str, value: float | None) -> None:
        """Add a reading; None (not reported by the device) is skipped."""
        if value is not None:
            self._numbers[name].append(value)

    def add_reasons(self, names: Iterable[str]) -> None:
        self._reasons.update(names)

    def medians(self) -> Mapping[str, float | str | tuple[str, ...]]:
        """Medians of the numbers; ``throttle_reasons``, sorted, if there were any."""
        found: dict[str, float | str | tuple[str, ...]] = {
            name: statistics.median(values) for name, values in self._numbers.items()
        }
        if self._reasons:
            found["throttle_reasons"] = tuple(sorted(self._reasons))
        return found
