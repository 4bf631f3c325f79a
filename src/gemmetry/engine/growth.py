"""Experiments that grow, of measurements or traces: what may change when a larger plan continues in
the same folder, and what is then repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.outcome import Outcome, Verification
from gemmetry.domain.record import Record, Verdict
from gemmetry.domain.settings import Resume
from gemmetry.engine.jobs import Job
from gemmetry.specs.keys import SETTINGS
from gemmetry.store.experiment import Experiment
from gemmetry.store.growth import Again
from gemmetry.store.manifest import plan_differences
from gemmetry.store.rows import Lane

_AXES = ("name", "operations", "targets", "providers", "selection", "default_configurations_only")
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
        provider["name"]: {**provider, "options": _but_configurations(provider["options"])}
        for provider in document.get("providers", ())
        if provider["name"] in shared
    }
    return found


def _but_configurations(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != _CONFIGURATIONS}


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
        return Again()
    found: dict[int, Verdict | None] = {}
    for number, record in store.numbered_records():
        if record.outcome in (Outcome.SKIPPED, Outcome.TIMEOUT):
            if has_other_limits:
                found[number] = None
        elif lacks is not None and lacks(number, record):
            found[number] = _verdict(record) if job.keeps_verdicts else None
    return Again(found)


def _verdict(record: Record) -> Verdict | None:
    is_verified = record.verdict.status is not Verification.NOT_VERIFIED
    return record.verdict if is_verified else None
