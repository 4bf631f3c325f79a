"""Turns stored plan rows back into operations and configurations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.planning import LaneProvider
from gemmetry.store.rows import PlannedDispatch


class Resolver:
    """Maps names to objects. Rows come in plan order, so only the last operation is remembered."""

    def __init__(self, lanes: Mapping[int, LaneProvider]) -> None:
        self._lanes = lanes
        self._name = ""
        self._operation: Operation | None = None
        self._configurations: dict[int, dict[str, Configuration]] = {}

    def candidates(self, rows: Iterable[PlannedDispatch]) -> Iterator[Candidate]:
        """Create a candidate for each row.

        A configuration that its provider no longer offers (an update of a plug-in) is created from
        its name alone, and building it fails with the reason.
        """
        for row in rows:
            operation = self._parse(row.operation)
            item = self._lanes[row.lane]
            configuration = self._find(item, operation, row.configuration)
            yield Candidate(row.id, item.lane, operation, row.operation, configuration)

    def _parse(self, name: str) -> Operation:
        if self._operation is None or name != self._name:
            self._name, self._operation = name, parse_operation(name)
            self._configurations.clear()
        return self._operation

    def _find(self, item: LaneProvider, operation: Operation, name: str) -> Configuration:
        known = self._configurations.get(item.lane.id)
        if known is None:
            offered = item.provider.configurations(operation, item.lane.target)
            known = self._configurations[item.lane.id] = {c.name: c for c in offered}
        found = known.get(name)
        if found is None:
            found = item.provider.parse_configuration(name, operation, item.lane.target)
        return found or Configuration(name)
