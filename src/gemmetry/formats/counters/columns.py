"""Launches that are read one by one -> the columns of a :class:`LaunchTable`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from gemmetry.formats.counters.launches import Float64, LaunchInfo, LaunchTable, Tool


class Columns:
    """The values of `count` launches.

    Args:
        metrics: ids of those to keep; None for all.
    """

    def __init__(self, count: int, metrics: Collection[str] | None = None) -> None:
        self._count = count
        self._metrics = metrics
        self._values: dict[str, Float64] = {}
        self._units: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}

    def put(self, row: int, metric: str, value: float | str | None, unit: str = "") -> None:
        """Store one value, a number in the base unit `unit` or a text; None where it is missing."""
        if self._metrics is not None and metric not in self._metrics:
            return
        if isinstance(value, str):
            if value:
                self._texts.setdefault(metric, [""] * self._count)[row] = value
            return
        column = self._values.get(metric)
        if column is None:
            column = self._values[metric] = np.full(self._count, np.nan)
            self._units[metric] = unit
        # Damaged files have whole numbers that no float64 holds.
        if value is not None and abs(value) <= sys.float_info.max:
            column[row] = value

    def unit(self, metric: str) -> str | None:
        """The unit of a metric that was stored; None if none was."""
        return self._units.get(metric)

    def table(
        self,
        tool: Tool,
        infos: Sequence[LaunchInfo],
        *,
        version: str = "",
        source: Path | None = None,
        problems: Sequence[str] = (),
    ) -> LaunchTable:
        """All of them."""
        return LaunchTable(
            tool=tool,
            infos=infos,
            values=self._values,
            units=self._units,
            texts=dict(self._texts),
            version=version,
            source=source,
            problems=list(problems),
        )
