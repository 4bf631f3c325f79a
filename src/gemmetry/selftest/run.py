"""The self-test of verification: every kernel of the catalogue of mutants, run by the engine like
any dispatch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind, parse_operation
from gemmetry.domain.errors import EmptySelectionError, Stage, UnknownNameError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Listener, ignore_events
from gemmetry.domain.settings import VERIFICATION_LEVELS, RunSettings
from gemmetry.domain.tables import grouped
from gemmetry.engine.schema import DEFAULT_FOLDER
from gemmetry.providers.registry import load_provider
from gemmetry.selftest import NAME
from gemmetry.selftest.provider import (
    WITHOUT_MUTANT,
    Carrier,
    Mutant,
    all_mutants,
    mutants_by_configuration,
)

if TYPE_CHECKING:
    from gemmetry.selftest.kill_matrix import KillMatrix


DEADLINES_S: Mapping[Stage, float] = {Stage.VERIFY: 60.0, Stage.MEASURE: 20.0}
"""A mutant that hangs costs this long. The slowest mutant that does not hang (Triton's interpreter,
at `standard`) takes about 10 s of processor time, and the slowest of the host 1 s."""

PARANOID_LONGER = 1.5
"""How many times as long the deadline is at `paranoid`, where the slowest mutant that does not hang
takes 17 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """A self-test that is ready to run."""

    plan: Plan
    experiment: Path
    absent: Mapping[str, str]
    """Configuration -> why it is left out on this machine or by this request."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The selection of a plan: exactly these kernels of the catalogue."""

    configurations: frozenset[str]

    def matches(self, provider: str, name: str, operation: Operation) -> bool:
        return any(name.endswith(f"_{configuration}") for configuration in self.configurations)


def prepare_self_test(
    *,
    level: str = "standard",
    vehicles: Sequence[str] = (),
    mutants: Sequence[str] = (),
    experiment: str | PathLike[str] | None = None,
) -> SelfTest:
    """The plan of the kernels of the catalogue that can run here; nothing runs.

    Args:
        vehicles: names of :class:`Carrier`; empty: every one that this machine has.
        mutants: globs on the names of configurations; empty: all.

    Raises:
        UnknownNameError: no such level or carrier. EmptySelectionError: nothing is left.
    """
    if level not in VERIFICATION_LEVELS:
        raise UnknownNameError("verification level", level, VERIFICATION_LEVELS)
    for name in vehicles:
        if name not in tuple(Carrier):
            raise UnknownNameError("carrier", name, tuple(Carrier))
    places = {carrier: _places(carrier) for carrier in Carrier}
    chosen: dict[Target, list[Mutant]] = {}
    absent: dict[str, str] = {}
    for item in all_mutants():
        name, targets = item.configuration, places[item.carrier]
        if vehicles and item.carrier not in vehicles:
            absent[name] = "left out by --vehicle"
        elif mutants and not any(fnmatchcase(name, glob) for glob in mutants):
            absent[name] = "left out by --mutants"
        elif isinstance(targets, str):
            absent[name] = targets
        elif item.level == VERIFICATION_LEVELS[-1] != level:
            absent[name] = f"only the level {item.level} has a check for it"
        else:
            for target in targets:
                chosen.setdefault(target, []).append(item)
    if not chosen:
        raise _nothing_left(vehicles, mutants, absent)
    plan = _plan(chosen, level)
    folder = Path(experiment) if experiment else DEFAULT_FOLDER / f"{plan.name}-{plan.hash}"
    return SelfTest(plan=plan, experiment=folder, absent=absent)


def matrix_of(prepared: SelfTest) -> KillMatrix:
    """The kill matrix of the experiment's results.

    Raises:
        RequestError: no experiment is there.
    """
    from gemmetry.engine.experiment import Experiment
    from gemmetry.selftest.kill_matrix import kill_matrix

    with Experiment.open(prepared.experiment) as stored:
        return kill_matrix(
            all_mutants(), stored.records(), absent=prepared.absent, without_mutant=WITHOUT_MUTANT
        )


def self_test(
    *,
    level: str = "standard",
    vehicles: Sequence[str] = (),
    mutants: Sequence[str] = (),
    experiment: str | PathLike[str] | None = None,
    listener: Listener = ignore_events,
    fresh: bool = False,
) -> KillMatrix:
    """Verify every kernel of the catalogue that can run here and score the checks.

    Results are stored in the folder `experiment` (default: ``gemmetry-out/self-test-<hash>``), from
    which a run resumes as long as neither the plan nor gemmetry's own code changes.

    Raises:
        RequestError: the request is wrong. EnvironmentFailure: the machine failed.
    """
    from gemmetry.engine import run

    prepared = prepare_self_test(
        level=level, vehicles=vehicles, mutants=mutants, experiment=experiment
    )
    command = "gemmetry.self_test(...)"
    run(prepared.plan, prepared.experiment, listener=listener, fresh=fresh, command=command)
    return matrix_of(prepared)


def _plan(chosen: Mapping[Target, Sequence[Mutant]], level: str) -> Plan:
    items = [item for some in chosen.values() for item in some]
    settings = _settings(level)
    how = asdict(settings)
    how["deadlines_s"] = {str(stage): value for stage, value in settings.deadlines_s.items()}
    return Plan(
        name="self-test",
        operations=tuple(map(parse_operation, dict.fromkeys(item.operation for item in items))),
        providers=(ProviderRequest(name=NAME),),
        targets=tuple(chosen),
        selection=Chosen(frozenset(item.configuration for item in items)),
        settings=settings,
        document={
            "name": "self-test",
            "planted": {str(one): [i.configuration for i in of] for one, of in chosen.items()},
            "settings": how,
            "code": _code_digest(),
        },
    )


def _settings(level: str) -> RunSettings:
    """The timing is short: it is needed only because some mutants are right until they are
    timed."""
    defaults = RunSettings()
    longer = PARANOID_LONGER if level == VERIFICATION_LEVELS[-1] else 1.0
    own = {stage: seconds * longer for stage, seconds in DEADLINES_S.items()}
    return replace(
        defaults,
        verification_level=level,
        judge_rivals=True,
        processes=1,
        time_budget_s=0.1,
        warmup_iterations=1,
        max_samples=20,
        deadlines_s={**defaults.deadlines_s, **own},
    )


def _places(carrier: Carrier) -> list[Target] | str:
    """The devices of this machine on which kernels of `carrier` run, or why there is none."""
    from gemmetry.selftest.provider import carrier_problem

    targets = _targets()
    problems = {target: carrier_problem(carrier, target) for target in targets}
    found = [target for target, problem in problems.items() if problem is None]
    if found:
        return found
    if carrier is Carrier.CUDA and all(t.kind is not TargetKind.CUDA for t in targets):
        return "this machine has no CUDA device that torch can use"
    return "; ".join(dict.fromkeys(text for text in problems.values() if text))


@cache
def _targets() -> tuple[Target, ...]:
    """The first device of each kind."""
    kinds = grouped(load_provider(NAME).targets(), lambda target: target.kind)
    return tuple(same[0] for same in kinds.values())


@cache
def _code_digest() -> str:
    """A digest of gemmetry's own sources, so that results of other code are not taken for results
    of this code."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    suffixes = ("*.py", "*.cu", "*.cuh", "mutants.csv")
    for path in sorted(path for suffix in suffixes for path in root.rglob(suffix)):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _nothing_left(
    vehicles: Iterable[str], mutants: Iterable[str], absent: Mapping[str, Any]
) -> EmptySelectionError:
    if mutants:
        near = list(mutants_by_configuration())[:3]
        return EmptySelectionError(
            f"no mutant that can run here matches {', '.join(mutants)}",
            hint=f"Names look like {', '.join(near)}; globs are accepted.",
        )
    reasons = dict.fromkeys(absent.values())
    return EmptySelectionError(
        f"no mutant of {', '.join(vehicles) or 'any carrier'} can run here: {'; '.join(reasons)}",
        hint="Leave --vehicle out to run those that can.",
    )
