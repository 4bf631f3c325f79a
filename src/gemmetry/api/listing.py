"""Lists the dispatches of a plan without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.settings import LOCAL
from gemmetry.domain.target import Target
from gemmetry.engine.dispatches.candidate import RecordMaker
from gemmetry.engine.jobs import job_of
from gemmetry.engine.planning import enumerate_plan, make_lanes
from gemmetry.engine.slots.agents import plan_for_agents
from gemmetry.providers.registry import load_provider


@dataclass(frozen=True, slots=True)
class ListedDispatch:
    """A dispatch of a plan by its names."""

    provider: str
    target: Target
    operation: str
    configuration: str
    refusal: str
    """Why the provider does not support it; "" if it does."""

    @property
    def name(self) -> str:
        return f"{self.operation}_{self.configuration}"


def list_dispatches(plan: Plan) -> Iterator[ListedDispatch]:
    """The dispatches of `plan` in its order, as a run would find them.

    Raises:
        EmptySelectionError: nothing is selected. RequestError: a configuration is unknown, or
            agents cannot do what is requested.
    """
    if plan.settings.executor != LOCAL:
        plan = plan_for_agents(plan, job_of(plan.settings), None)
    lanes = make_lanes(plan, load_provider)
    by_id = {item.lane.id: item.lane for item in lanes}
    records = RecordMaker(plan.settings, "", Path())
    names: dict[int, str] = {}
    configurations: dict[int, str] = {}
    for batch in enumerate_plan(plan, lanes, records.failed):
        names.update(batch.operations)
        configurations.update(batch.configurations)
        refusals = {key: record.reason for key, record in batch.finished}
        for key, operation, lane_id, configuration in batch.dispatches:
            lane = by_id[lane_id]
            yield ListedDispatch(
                lane.provider,
                lane.target,
                names[operation],
                configurations[configuration],
                refusals.get(key, ""),
            )
