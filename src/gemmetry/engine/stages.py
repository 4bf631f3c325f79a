"""Single stages of a run: writing sources, and the plans that compile or record traces."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Plan
from gemmetry.domain.errors import DispatchError, Stage
from gemmetry.domain.record import Listener, Message, Record, StageProgress, ignore_events
from gemmetry.domain.settings import TraceSchedule
from gemmetry.domain.specs.generated import Generated, add_generated
from gemmetry.engine.candidates import RecordMaker
from gemmetry.engine.planning import Resolver, enumerate_plan, make_lanes
from gemmetry.engine.store.rows import PlannedDispatch
from gemmetry.providers.registry import load_provider


def compile_plan(plan: Plan) -> Plan:
    """The plan that compiles what `plan` would measure. It has its own hash, so that its records
    are not mistaken for those of `plan`."""
    settings = dataclasses.replace(plan.settings, measure=False, verify=False)
    document = {**plan.document, "stages": ["compile"]}
    return dataclasses.replace(plan, settings=settings, document=document)


def trace_plan(plan: Plan, schedule: TraceSchedule) -> Plan:
    """The plan that records traces of what `plan` would measure; nothing is timed."""
    settings = dataclasses.replace(plan.settings, measure=False, trace=schedule)
    how = {**dataclasses.asdict(schedule), "deadline_s": settings.deadlines_s[Stage.TRACE]}
    if not schedule.chakra_all_steps:
        del how["chakra_all_steps"]  # Grids from before this was configurable continue.
    document = {**plan.document, "stages": ["trace"], "trace": how}
    return dataclasses.replace(plan, settings=settings, document=document)


def generate(plan: Plan, workspace: Workspace, *, listener: Listener = ignore_events) -> list[Path]:
    """Write the sources of every dispatch of `plan`, in this process, and a list of them. Returns
    the files, in order.

    Sources that a provider cannot generate are left out, with a warning.

    Raises:
        RequestError: the plan cannot be carried out. OSError: it cannot be written.
    """
    lanes = {item.lane.id: item for item in make_lanes(plan, load_provider)}
    records = RecordMaker(plan.settings, "", workspace.generated)
    names: dict[int, str] = {}
    configurations: dict[int, str] = {}
    rows: dict[tuple[int, int], list[PlannedDispatch]] = defaultdict(list)
    refused: list[Record] = []
    for batch in enumerate_plan(plan, list(lanes.values()), records.failed):
        names.update(batch.operations)
        configurations.update(batch.configurations)
        done = {key for key, _ in batch.finished}
        refused += [record for _, record in batch.finished]
        for key, operation, lane, configuration in batch.dispatches:
            if key not in done:
                row = PlannedDispatch(key, names[operation], lane, configurations[configuration])
                rows[operation, lane].append(row)
    for record in refused:
        listener(Message(f"{record.provider}:{record.operation}: {record.reason}", "warning"))
    resolver = Resolver(lanes)
    paths: dict[Path, None] = {}
    written: list[Generated] = []
    for number, group in enumerate(rows.values(), 1):
        candidates = list(resolver.candidates(group))
        item = lanes[candidates[0].lane.id]
        dispatches = [
            Dispatch(c.operation, c.configuration, c.lane.provider, c.lane.target)
            for c in candidates
        ]
        current = f"{item.lane.provider}:{candidates[0].operation_name}"
        try:
            made = item.provider.generate(dispatches, workspace)
            paths.update(dict.fromkeys(made))
            written += _written(dispatches, made, workspace)
        except DispatchError as error:
            listener(Message(f"{current}: {error.message}", "warning"))
        listener(StageProgress(Stage.GENERATE, number, len(rows), current))
    if written:
        add_generated(workspace.generated, written)
    return list(paths)


def _written(
    dispatches: Sequence[Dispatch], paths: Sequence[Path], workspace: Workspace
) -> list[Generated]:
    """The entry of one operation's dispatches; none if no file was written."""
    if not paths:
        return []
    first = dispatches[0]
    names = tuple(dispatch.configuration.name for dispatch in dispatches)
    source = str(paths[0].relative_to(workspace.generated))
    return [Generated(first.provider, first.target.name, first.operation, names, source)]
