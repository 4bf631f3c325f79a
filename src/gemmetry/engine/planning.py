"""Enumerates a plan: operations × targets × providers × configurations, as rows for the store.

The inner loop runs a million times for a large plan (the limit in ``benchmarks/engine.py`` is 3 s),
so it creates names with :func:`operation_namer`, refers to configurations by number and creates no
object per dispatch.

Experiments that grow, of measurements or traces: what may change when a larger plan continues in
the same folder, and what is then repeated.

Turns stored plan rows back into operations and configurations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    NamedDispatch,
    Plan,
    Shard,
    parse_operation,
    parse_shard,
)
from gemmetry.domain.errors import (
    EmptySelectionError,
    Outcome,
    RequestError,
    Verification,
    did_you_mean,
    nearest,
)
from gemmetry.domain.operation import Operation, operation_name, operation_namer
from gemmetry.domain.options import SETTINGS
from gemmetry.domain.record import Record, Verdict
from gemmetry.domain.settings import RAY, Resume
from gemmetry.domain.tables import grouped
from gemmetry.engine.candidates import Candidate, Job, RecordMaker
from gemmetry.engine.experiment import Again, Experiment
from gemmetry.engine.schema import Lane, PlanBatch, PlannedDispatch, plan_differences

BATCH_ROWS = 50_000
"""The rows passed to the store at once: enough to amortise the call, and few enough that a plan of
any size needs a few MB."""

NAMES_FOR_SUGGESTIONS = 4000
"""The most names that are compared with a pattern that matched nothing."""

_SHAPE = re.compile(r"matmul_(\d+x\d+x\d+(?:x\d+)?)_")

LoadProvider = Callable[[str, Mapping[str, object]], Provider]
MakeRecord = Callable[[Lane, Operation, Configuration, str], Record]


@dataclass(frozen=True, slots=True)
class LaneProvider:
    """A lane and its provider in this process, for questions that run nothing."""

    lane: Lane
    provider: Provider
    unavailable: str | None
    """Why the provider does not work on this machine; None if it does."""

    def refusal(self, operation: Operation) -> str | None:
        """Why the provider does not support `operation` on the lane's target; None if it does."""
        return self.unavailable or self.provider.supports(operation, self.lane.target)


def make_lanes(plan: Plan, load: LoadProvider) -> list[LaneProvider]:
    """A lane for each target × provider, numbered from 1, targets outermost. What is available on
    the nodes of a cluster is known there.

    Raises:
        RequestError: the plan has no target or no provider; a provider does not exist.
    """
    if not plan.targets or not plan.providers:
        missing = "targets" if not plan.targets else "providers"
        raise RequestError(
            f"the plan {plan.name} has no {missing}", hint=f"Name some with --{missing}."
        )
    loaded = [(request, load(request.name, request.options)) for request in plan.providers]
    is_here = plan.settings.executor != RAY
    reasons = [provider.available() if is_here else None for _, provider in loaded]
    lanes: list[LaneProvider] = []
    for target in plan.targets:
        for (request, provider), reason in zip(loaded, reasons, strict=True):
            lane = Lane(len(lanes) + 1, request.name, request.options, target)
            lanes.append(LaneProvider(lane, provider, reason))
    return lanes


def enumerate_plan(
    plan: Plan, lanes: Sequence[LaneProvider], make_record: MakeRecord
) -> Iterator[PlanBatch]:
    """The plan's rows in batches: those of its shard, with the numbers of the whole plan.

    A provider that does not support an operation contributes one row, the default configuration,
    with the outcome ``unsupported``.

    Raises:
        EmptySelectionError: nothing is left; the message lists the nearest names.
        RequestError: no provider has a configuration that is requested by name.
    """
    rows = _Rows(plan, lanes, make_record)
    shard = parse_shard(plan.settings.shard)
    for batch in rows.batches():
        yield batch if shard is None else _part(batch, shard)
    if rows.count == 0:
        raise _nothing_left(plan, rows.seen_names, lanes)


def planned_rows(
    plan: Plan, lanes: Sequence[LaneProvider]
) -> Iterator[tuple[PlannedDispatch, str]]:
    """The dispatches of a plan in its order, each with the reason why its provider does not support
    it; "" if it does. Raises what :func:`enumerate_plan` does."""
    names: dict[int, str] = {}
    configurations: dict[int, str] = {}
    for batch in enumerate_plan(plan, lanes, RecordMaker(plan.settings, "", Path()).refused):
        names.update(batch.operations)
        configurations.update(batch.configurations)
        refusals = {key: record.reason for key, record in batch.finished}
        for key, operation, lane, configuration in batch.dispatches:
            row = PlannedDispatch(key, names[operation], lane, configurations[configuration])
            yield row, refusals.get(key, "")


def _part(batch: PlanBatch, shard: Shard) -> PlanBatch:
    """The rows of the operations that `shard` takes."""
    mine = {number for number, name in batch.operations if shard.takes(name)}
    dispatches = [row for row in batch.dispatches if row[1] in mine]
    kept = {row[0] for row in dispatches}
    operations = [row for row in batch.operations if row[0] in mine]
    finished = [row for row in batch.finished if row[0] in kept]
    return PlanBatch(operations, batch.configurations, dispatches, finished)


class _Rows:
    def __init__(self, plan: Plan, lanes: Sequence[LaneProvider], make_record: MakeRecord) -> None:
        self._plan = plan
        self._lanes = lanes
        self._make_record = make_record
        self._matches = None if plan.selection is None else plan.selection.matches
        self._named_ids: dict[Operation, int] = {}
        self._named_keys: set[tuple[int, int, int]] = set()
        self._named = grouped(plan.named, lambda named: named.operation)
        self._configuration_ids: dict[str, int] = {}
        self._operation_count = 0
        self.count = 0
        self.seen_names: list[str] = []
        self._batch = PlanBatch()

    def _take(self) -> PlanBatch:
        batch, self._batch = self._batch, PlanBatch()
        return batch

    def batches(self) -> Iterator[PlanBatch]:
        """Rows of operations × targets × providers × configurations, filtered; then of dispatches
        that are requested by their full names, of operations that the product does not contain."""
        signature = namer = None
        for operation in self._plan.operations:
            if operation.signature is not signature or namer is None:
                signature = operation.signature
                namer = operation_namer(signature)
            self._add_operation(operation, namer(operation.shape))
            if len(self._batch.dispatches) >= BATCH_ROWS:
                yield self._take()
        for dispatches in self._named.values():
            self._add_all_named(dispatches)
            if len(self._batch.dispatches) >= BATCH_ROWS:
                yield self._take()
        yield self._take()

    def _add_operation(self, operation: Operation, name: str) -> None:
        matches, configuration_ids = self._matches, self._configuration_ids
        only_default = self._plan.default_configurations_only
        proposed_only = self._plan.proposed_only
        operation_id = self._operation_count + 1
        dispatch_id = self.count
        append = self._batch.dispatches.append
        for item in self._lanes:
            lane = item.lane
            configurations: Iterable[Configuration] = (_DEFAULT,)
            reason = item.refusal(operation)
            if reason is None:
                configurations = item.provider.configurations(operation, lane.target)
            for configuration in configurations:
                text = configuration.name
                if not configuration.is_proposed and lane.provider in proposed_only:
                    continue
                if matches is not None and not self._wanted(operation, name, lane, text):
                    if only_default:
                        break
                    continue
                configuration_id = configuration_ids.get(text) or self._add_configuration(text)
                dispatch_id += 1
                append((dispatch_id, operation_id, lane.id, configuration_id))
                if reason is not None:
                    self._refuse(dispatch_id, lane, operation, configuration, reason)
                if only_default:
                    break
        if dispatch_id == self.count:
            return
        self.count = dispatch_id
        self._operation_count = operation_id
        self._batch.operations.append((operation_id, name))
        if self._named and operation in self._named:
            self._named_ids[operation] = operation_id
            self._named_keys.update(
                (row[1], row[2], row[3]) for row in self._batch.dispatches if row[1] == operation_id
            )
            # Next to the others, as neighbours are measured in turns.
            self._add_all_named(self._named.pop(operation))

    def _wanted(self, operation: Operation, name: str, lane: Lane, configuration: str) -> bool:
        full = f"{name}_{configuration}"
        if len(self.seen_names) < NAMES_FOR_SUGGESTIONS:
            self.seen_names.append(full)
        assert self._matches is not None
        return self._matches(lane.provider, full, operation)

    def _add_configuration(self, name: str) -> int:
        number = len(self._configuration_ids) + 1
        self._configuration_ids[name] = number
        self._batch.configurations.append((number, name))
        return number

    def _add_all_named(self, dispatches: Iterable[NamedDispatch]) -> None:
        for named in dispatches:
            found = [item for item in self._lanes if self._knows(item, named)]
            if not found:
                lanes = [one for one in self._lanes if named.provider in (None, one.lane.provider)]
                names = dict.fromkeys(one.lane.provider for one in lanes)
                raise RequestError(
                    f"no provider of {named.provider or ', '.join(names)} has the configuration "
                    f"{named.configuration!r} for {named.operation}",
                    hint=_other_target_hint(named, lanes) or _nearest_hint(named, lanes),
                )
            for item in found:
                self._add_named(item, named)

    def _knows(self, item: LaneProvider, named: NamedDispatch) -> bool:
        lane, configuration = item.lane, named.configuration
        return (
            named.provider in (None, lane.provider)
            and named.target in (None, lane.target.name)
            and item.provider.parse_configuration(configuration, named.operation, lane.target)
            is not None
        )

    def _add_named(self, item: LaneProvider, named: NamedDispatch) -> None:
        if (operation_id := self._named_ids.get(named.operation)) is None:
            self._operation_count += 1
            operation_id = self._named_ids[named.operation] = self._operation_count
            self._batch.operations.append((operation_id, operation_name(named.operation)))
        text = named.configuration
        configuration_id = self._configuration_ids.get(text) or self._add_configuration(text)
        key = (operation_id, item.lane.id, configuration_id)
        if key in self._named_keys:
            return
        self._named_keys.add(key)
        self.count += 1
        self._batch.dispatches.append((self.count, *key))
        if (reason := item.refusal(named.operation)) is not None:
            self._refuse(self.count, item.lane, named.operation, Configuration(text), reason)

    def _refuse(
        self, number: int, lane: Lane, operation: Operation, chosen: Configuration, reason: str
    ) -> None:
        record = self._make_record(lane, operation, chosen, reason)
        self._batch.finished.append((number, record))


_DEFAULT = Configuration(DEFAULT_CONFIGURATION)


def _other_target_hint(named: NamedDispatch, lanes: Sequence[LaneProvider]) -> str:
    """If the provider has the configuration on another target, how to request that target."""
    here = {item.lane.target for item in lanes}
    for item in lanes:
        for target in item.provider.targets():
            if target in here or item.provider.supports(named.operation, target) is not None:
                continue
            if item.provider.parse_configuration(named.configuration, named.operation, target):
                device = target.device or target.name
                only = "" if target.device else ", which compiles without measuring"
                return f"{item.lane.provider} has it with --device {device}{only}."
    return ""


def _nearest_hint(named: NamedDispatch, lanes: Sequence[LaneProvider]) -> str:
    known: list[str] = []
    for item in lanes:
        if not item.refusal(named.operation):
            target = item.lane.target
            known.extend(c.name for c in item.provider.configurations(named.operation, target))
            if len(known) > NAMES_FOR_SUGGESTIONS:
                break
    near = nearest(named.configuration, known[:NAMES_FOR_SUGGESTIONS])
    if near or not known:
        return did_you_mean(near) or "Add the provider that it belongs to with --providers."
    return f"Known here: {', '.join(known[:8])}; all of them: `gemmetry list configurations`."


_TILE = re.compile(r"tile_(\d+x\d+)")
"""M and N of a tile, in names of configurations and in patterns of them."""


def _why_no_tile(text: str, plan: Plan, lanes: Sequence[LaneProvider]) -> str:
    """Why no configuration has the tile of a selection; "" where that is not known."""
    wanted, operation = _TILE.search(text), next(iter(plan.operations), None)
    if wanted is None or operation is None:
        return ""
    reasons: dict[str, str] = {}
    for item in lanes:
        if item.refusal(operation):
            continue
        target = item.lane.target
        for known in item.provider.configurations(operation, target):
            name = _TILE.sub(wanted[0], known.name)
            if name != known.name and (why := item.provider.why_not(name, operation, target)):
                reasons.setdefault(re.sub(r"\S*\d\S*", "", why), f"{item.lane.provider}: {why}")
    return f": {'; '.join(reasons.values())}" if reasons else ""


def _nothing_left(
    plan: Plan, names: Sequence[str], lanes: Sequence[LaneProvider]
) -> EmptySelectionError:
    if plan.selection is None or not names:
        return EmptySelectionError(
            f"the plan {plan.name} contains no dispatches: its providers offer no configurations "
            "for its operations",
            hint="Check the shapes, dtypes and providers with `gemmetry list configurations`.",
        )
    patterns = [str(getattr(p, "text", p)) for p in getattr(plan.selection, "include", ())]
    text = ", ".join(patterns) or str(plan.selection)
    near = nearest(text.strip("*"), names) or list(names[:3])
    new = [s for s in _SHAPE.findall(text) if not any(f"_{s}_" in name for name in names)]
    adding = f"The plan has no shape {new[0]}: --shapes {new[0]} adds it. " if new else ""
    return EmptySelectionError(
        f"the selection {text} matches none of the plan's dispatches"
        f"{_why_no_tile(text, plan, lanes)}",
        hint=f"{adding}The most similar names: {', '.join(near)}.",
    )


_AXES = ("name", "operations", "targets", "providers", "selection", "default_configurations_only",
         "configurations")  # fmt: skip
"""The parts of a plan's document that determine which dispatches there are."""


def _settings_that(resume: Resume) -> frozenset[str]:
    return frozenset(key.setting for key in SETTINGS if key.resume is resume)


_AMOUNTS = _settings_that(Resume.MORE_SAMPLES)
_LIMITS = _settings_that(Resume.OTHER_LIMITS)

_CONFIGURATIONS = "configurations"
"""The option of a provider that lists configurations; more configurations give more dispatches."""


def obstacles(job: Job, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The differences between the documents of two plans, the second of which is for `job`, that
    prevent them from sharing an experiment, because they change results; "" if there are none, so
    that one may grow into the other."""
    old, new = _fixed(theirs, ours), _fixed(ours, theirs)
    return plan_differences(old, job.without_growth(old, new))


def _fixed(document: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What growth may not change; of the providers, those that both plans name."""
    found = {key: value for key, value in document.items() if key not in _AXES}
    settings = document.get("settings")
    if isinstance(settings, Mapping):
        free = _AMOUNTS | _LIMITS
        found["settings"] = {key: value for key, value in settings.items() if key not in free}
    shared = {provider["name"] for provider in other.get("providers", ())}
    found["providers"] = {
        provider["name"]: {**provider, "options": {**provider["options"], _CONFIGURATIONS: None}}
        for provider in document.get("providers", ())
        if provider["name"] in shared
    }
    return found


def with_known_configurations(lanes: Sequence[Lane], known: Sequence[Lane]) -> list[Lane]:
    """`lanes`, each with the listed configurations of the same lane among `known` as well, because
    their dispatches may not be finished yet."""
    listed = {lane.place: lane.options.get(_CONFIGURATIONS) for lane in known}
    found = []
    for lane in lanes:
        before = listed.get(lane.place) or []
        mine = lane.options.get(_CONFIGURATIONS) or []
        both = [*before, *(one for one in mine if one not in before)]
        options = {**lane.options, _CONFIGURATIONS: both} if both else lane.options
        found.append(replace(lane, options=options))
    return found


def wanted_again(store: Experiment, plan: Plan, job: Job) -> Again:
    """Finished dispatches that continue under the settings of `plan`: those that were given up
    because of other limits, and those for which `job` requires more results."""
    theirs, ours = (one.get("settings", {}) for one in (store.manifest.document, plan.document))
    has_other_limits = any(theirs.get(name) != ours.get(name) for name in _LIMITS)
    other_amounts = any(theirs.get(name) != ours.get(name) for name in _AMOUNTS)
    lacks = job.lacking(store, other_amounts=other_amounts)
    if lacks is None and not has_other_limits:
        return {}
    found: dict[int, Verdict | None] = {}
    for number, record in store.numbered_records():
        if record.outcome in (Outcome.SKIPPED, Outcome.TIMEOUT):
            if has_other_limits:
                found[number] = None
        elif lacks is not None and lacks(number, record):
            is_verified = record.verdict.status is not Verification.NOT_VERIFIED
            found[number] = record.verdict if is_verified and job.keeps_verdicts else None
    return found


def candidates_of(
    rows: Iterable[PlannedDispatch], lanes: Mapping[int, LaneProvider]
) -> Iterator[Candidate]:
    """Create a candidate for each row. Rows come in plan order, so only the configurations of the
    last operation are remembered.

    A configuration that its provider no longer offers (an update of a plug-in) is created from its
    name alone, and building it fails with the reason.
    """
    for name, group in groupby(rows, lambda row: row.operation):
        operation = parse_operation(name)
        offered: dict[int, dict[str, Configuration]] = {}
        for row in group:
            item, wanted = lanes[row.lane], row.configuration
            target = item.lane.target
            if row.lane not in offered:
                known = item.provider.configurations(operation, target)
                offered[row.lane] = {one.name: one for one in known}
            found = offered[row.lane].get(wanted) or item.provider.parse_configuration(
                wanted, operation, target
            )
            yield Candidate(row.id, item.lane, operation, name, found or Configuration(wanted))
