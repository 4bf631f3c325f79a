"""A grid of traces that grows: what an experiment recorded stays when its plan gets new axes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmetry.domain.environment import Environment
from gemmetry.domain.plan import Plan
from gemmetry.domain.record import Record, TraceFacts
from gemmetry.store.experiment import Experiment
from gemmetry.store.rows import Lane, PlanBatch
from gemmetry.store.schema import JOURNAL_NAME
from gemmetry.store.trace_manifest import Key, key_of

_HOW = ("stages", "trace", "settings")
"""Parts of a plan's document that must agree, or the traces would not be of one kind."""

_REPEATS = frozenset(("repeats", "repetitions"))
"""What the number of repeats is called in them; it may become larger."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a journal holds that a larger plan may take over."""

    records: Mapping[Key, Record]
    environments: Sequence[Environment]


def recorded_before(experiment: Path, plan: Plan) -> Recorded | None:
    """What `experiment` holds if `plan` differs from its plan in nothing but which dispatches it
    names; None if it is the same plan, or another kind of plan (which then is refused as usual).

    Raises:
        JournalDamagedError: the journal cannot be read.
    """
    if not (experiment / JOURNAL_NAME).is_file():
        return None
    with Experiment.open(experiment) as old:
        theirs, ours = old.manifest.document, plan.document
        if old.manifest.plan_hash == plan.hash:
            return None
        if any(_text(_but_repeats(theirs, part)) != _text(_but_repeats(ours, part))
               for part in _HOW):  # fmt: skip
            return None
        repeats = ours["trace"]["repeats"]
        if theirs["trace"]["repeats"] > repeats:
            return None
        alike = {provider["name"] for provider in ours["providers"]
                 if _text(provider) in map(_text, theirs["providers"])}  # fmt: skip
        records = {
            key_of(record): record
            for record in old.records()
            if record.provider in alike
            and (record.trace is None or _is_whole(experiment, record.trace, repeats))
        }
        return Recorded(records, tuple(old.environments().values()))


def _but_repeats(document: Mapping[str, Any], part: str) -> Any:
    found = document.get(part)
    if not isinstance(found, Mapping):
        return found
    return {key: value for key, value in found.items() if key not in _REPEATS}


def _is_whole(experiment: Path, trace: TraceFacts, repeats: int) -> bool:
    """True if a folder is there and has all repeats; what is missing is recorded."""
    return trace.repeats >= repeats and (experiment / trace.folder).is_dir()


def take_over(
    recorded: Recorded, lanes: Sequence[Lane], batches: Iterable[PlanBatch]
) -> Iterator[PlanBatch]:
    """`batches` of a plan with the records that `recorded` has for them."""
    by_id = {lane.id: lane for lane in lanes}
    operations: dict[int, str] = {}
    configurations: dict[int, str] = {}
    for batch in batches:
        operations.update(batch.operations)
        configurations.update(batch.configurations)
        finished = dict(batch.finished)
        for number, operation, lane_id, configuration in batch.dispatches:
            lane = by_id[lane_id]
            name = f"{operations[operation]}_{configurations[configuration]}"
            key = (lane.target.device or lane.target.name, lane.provider, name)
            record = recorded.records.get(key)
            if record is not None:
                finished.setdefault(number, record)
        yield replace(batch, finished=list(finished.items()))


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
