"""The plan of a search: its spaces, the experiments it measures in, and the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.api.catalogue import InstalledCatalogue
from gemmetry.api.profile import Prepared, prepare
from gemmetry.dispatcher.problems import operation_of, problem_of
from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, NamedDispatch, Plan
from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.domain.settings import VERIFICATION_LEVELS
from gemmetry.domain.target import Target
from gemmetry.providers.traits import baseline_names, traits_of
from gemmetry.specs.keys import KEYS
from gemmetry.specs.model import ProfileSpec, ProviderSpec
from gemmetry.tuning.simulation import FINALISTS
from gemmetry.tuning.space import SearchSpace, make_space, space_of
from gemmetry.tuning.stored import SEARCH_FOLDER
from gemmetry.tuning.strategy import EFFORTS, FULL, Limit, make_strategy

SAMPLES = 9
"""Of a full trial, where ``--benchmark-repetitions`` does not say otherwise: short trials then take
one and three."""
_IDLE = ("append", "html", "columns", "counters")
"""Keys of a spec about reports that a search does not write."""
_LEVEL = "standard"
"""The lowest level of verification that a winner has passed: the first one with races and tails."""
PROOFS_FOLDER = "proofs"
"""Folder of the proofs' experiment within that of the finals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTuning:
    """A search that is ready to run."""

    spec: ProfileSpec
    """Of the finals."""
    provider: str
    target: Target
    spaces: tuple[SearchSpace, ...]
    refusals: dict[str, str]
    """Operation -> why its space is empty."""
    baselines: tuple[str, ...]
    """``provider:configuration`` of each."""
    experiment: Path
    strategy: str
    limit: Limit
    seconds: float | None
    finalists: int
    notes: tuple[str, ...]
    has_proofs: bool
    """Whether each finalist is verified at level standard by itself, and the finals at a lower
    level."""
    kernels: Provider
    """The provider itself."""

    @property
    def seed(self) -> int:
        return int(self.spec.seed)  # type: ignore[attr-defined]

    def search_folder(self, effort: int) -> Path:
        """The experiment of the trials of an effort."""
        short = "" if effort == FULL else f"-short{FULL - effort}"
        return self.experiment / f"{SEARCH_FOLDER}{short}"

    @property
    def proofs_folder(self) -> Path:
        """The experiment of the proofs."""
        return self.experiment / PROOFS_FOLDER

    def search_plan(self, effort: int, names: Iterable[NamedDispatch]) -> Plan:
        """The plan of some trials: one process, verified at level quick, and so many samples."""
        samples = self.spec.benchmark_repetitions or SAMPLES  # type: ignore[attr-defined]
        values = {
            "providers": tuple(one for one in self.spec.providers if one.name == self.provider),
            "verification_level": VERIFICATION_LEVELS[0],
            "benchmark_repetitions": max(1, round(samples * EFFORTS[effort])),
            "processes": self.spec.processes or 1,  # type: ignore[attr-defined]
            "baseline": None,
        }
        return _named(prepare(self.spec.model_copy(update=values)).plan, names)

    def finals_plan(self, chosen: Sequence[Sequence[int]]) -> Plan:
        """The plan of the finals: the chosen configurations of each space, and the baselines."""
        plan = prepare(self.spec.model_copy(update={"benchmark_repetitions": None})).plan
        names = []
        for space, picks in zip(self.spaces, chosen, strict=True):
            if picks:
                names += [self.dispatch(space, one) for one in picks]
                names += [
                    NamedDispatch(operation=space.operation, provider=name, configuration=one)
                    for name, _, one in (text.partition(":") for text in self.baselines)
                ]
        return _named(plan, dict.fromkeys(names))

    def proofs_plan(self, chosen: Sequence[Sequence[int]]) -> Plan:
        """The plan that verifies each finalist at level standard."""
        values = {
            "providers": tuple(one for one in self.spec.providers if one.name == self.provider),
            "verification_level": _LEVEL,
            "benchmark_repetitions": None,
            "profiling_enabled": False,
            "baseline": None,
        }
        names = [
            proof
            for space, picks in zip(self.spaces, chosen, strict=True)
            for one in picks
            for proof in self.proofs(space, one)
        ]
        return _named(prepare(self.spec.model_copy(update=values)).plan, dict.fromkeys(names))

    def proofs(self, space: SearchSpace, candidate: int) -> list[NamedDispatch]:
        """What is verified of a configuration of a space at level standard: the same kernel at
        small sizes with tails and without or, if it cannot be built for these or would be another
        kernel, at its own size."""
        own = self.dispatch(space, candidate)
        kernels, operation = self.kernels, space.operation
        if not kernels.rebuilds_quickly or operation.kind is not OperationKind.MATMUL:
            return [own]
        try:
            small = [operation_of(one) for one in problem_of(operation).for_proof]
            are_possible = all(
                kernels.parse_configuration(own.configuration, one, self.target) is not None
                and kernels.supports(one, self.target) is None
                for one in small
            )
        except GemmetryError:
            return [own]
        return [replace(own, operation=one) for one in small] if are_possible else [own]

    def dispatch(self, space: SearchSpace, candidate: int) -> NamedDispatch:
        """A configuration of a space by its names."""
        return NamedDispatch(
            operation=space.operation,
            configuration=space.configurations[candidate].name,
            provider=self.provider,
        )


def _named(plan: Plan, names: Iterable[NamedDispatch]) -> Plan:
    """`plan` with these dispatches in place of its own."""
    named = tuple(names)
    listed = [f"{one.provider}:{one.operation}_{one.configuration}" for one in named]
    return replace(
        plan,
        operations=(),
        selection=None,
        named=named,
        document={**plan.document, "selection": {"dispatches": listed}},
    )


def prepare_tuning(
    spec: ProfileSpec,
    *,
    strategy: str,
    limit: Limit,
    seconds: float | None = None,
    finalists: int = FINALISTS,
    seeds: Sequence[str] = (),
) -> PreparedTuning:
    """The spaces, folders and baselines of a search; nothing runs.

    Args:
        spec: what is computed, by which one provider, and how it is run.
        strategy: a name of :data:`gemmetry.tuning.strategy.STRATEGIES`.
        limit: evaluations of each shape.
        seconds: how long the search may take, without the finals; None: as long as it takes.
        finalists: configurations of each shape in the finals.
        seeds: where configurations to try first come from (:mod:`.seeds`).

    Raises:
        RequestError: not one provider, nothing to verify, no device, no shape with a configuration.
        UnknownNameError: there is no such strategy.
    """
    if len(spec.providers) != 1:
        raise RequestError(
            "tune searches the configurations of one provider"
            + (f", not of {len(spec.providers)}" if spec.providers else ""),
            hint="Name it: --providers triton.",
        )
    if not spec.verification_enabled or spec.skip_ref_check:  # type: ignore[attr-defined]
        raise RequestError(
            "tune verifies what it measures, so that no wrong configuration wins",
            hint="Leave the verification enabled.",
        )
    if not spec.profiling_enabled:  # type: ignore[attr-defined]
        raise RequestError("tune measures, so profiling_enabled cannot be off", hint="Leave it on.")
    idle = [KEYS[key].option for key in _IDLE if key in spec.model_fields_set]
    if idle:
        raise RequestError(
            f"{' and '.join(idle)} would have no effect in tune",
            hint="Leave it out; `gemmetry report` writes reports of the finals' experiment.",
        )
    name = spec.providers[0].name
    prepared = prepare(spec)
    target = _one_target(prepared)
    catalogue = InstalledCatalogue()
    provider = catalogue.provider(name, prepared.plan.providers[0].options)
    spaces = tuple(_spaces(prepared.plan, provider, name, target))
    refusals = {
        str(one.operation): provider.supports(one.operation, target)
        or f"{name} has no configuration that fits it"
        for one in spaces
        if not len(one)
    }
    if len(refusals) == len(spaces):
        first = next(iter(refusals.items()), ("", "no shape is given"))
        raise RequestError(
            f"there is nothing to tune: {first[0]}: {first[1]}".replace(": :", ":"),
            hint=f"`gemmetry list configurations --providers {name}` lists configurations.",
        )
    make_strategy(strategy, spaces, limit, 0)  # Its name and its library, before anything runs.
    baselines = _baselines(spec, name, provider, target, catalogue, spaces)
    level = spec.verification_level  # type: ignore[attr-defined]
    others = dict.fromkeys(text.partition(":")[0] for text in baselines)
    given = {one.name for one in spec.providers}
    finals = spec.model_copy(
        update={
            "providers": (
                *spec.providers,
                *(ProviderSpec(name=other) for other in others if other not in given),
            ),
            "device": (target.device or target.name,),
        }
    )
    if seeds:
        from gemmetry.api.tuning.seeds import seeded

        spaces = seeded(spaces, seeds, name, target)
    return PreparedTuning(
        spec=finals,
        provider=name,
        target=target,
        spaces=spaces,
        refusals=refusals,
        baselines=baselines,
        experiment=prepared.experiment,
        strategy=strategy,
        limit=limit,
        seconds=seconds,
        finalists=finalists,
        notes=prepared.notes,
        has_proofs=VERIFICATION_LEVELS.index(level) < VERIFICATION_LEVELS.index(_LEVEL),
        kernels=provider,
    )


def _one_target(prepared: Prepared) -> Target:
    targets = prepared.plan.targets
    if len({target.name for target in targets}) > 1:
        names = ", ".join(target.device or target.name for target in targets)
        raise RequestError(
            f"tune measures on one kind of device, not on {names}", hint="Name one with --device."
        )
    return targets[0]


def _spaces(plan: Plan, provider: Provider, name: str, target: Target) -> Iterable[SearchSpace]:
    """A space for each operation, with the configurations that the request selects."""
    wanted = plan.selection
    for operation in plan.operations:
        space = space_of(provider, operation, target)
        if wanted is None or wanted.everything:
            yield space
            continue
        text = operation_name(operation)
        kept = [
            one
            for one in space.configurations
            if wanted.matches(name, f"{text}_{one.name}", operation)
        ]
        yield make_space(operation, kept, target)


def _baselines(
    spec: ProfileSpec,
    name: str,
    provider: Provider,
    target: Target,
    catalogue: InstalledCatalogue,
    spaces: Sequence[SearchSpace],
) -> tuple[str, ...]:
    """Those that are named, else the default of a vendor's library that is here, and the best of
    its algorithms where a provider offers that; without any, the provider's own default."""
    operations = [one.operation for one in spaces if len(one)]
    if spec.baseline:
        other, _, configuration = spec.baseline.partition(":")
        return (f"{other}:{configuration or DEFAULT_CONFIGURATION}",)
    found = []
    for other in baseline_names(catalogue.provider_names()):
        if other == name or not _works(catalogue, other, target, operations):
            continue
        library = catalogue.provider(other)
        offered = [one.name for one in library.configurations(operations[0], target)]
        if best := traits_of(other).best_configuration:
            found.append(f"{other}:{best}")
        elif offered and not found:
            found.append(f"{other}:{offered[0]}")
    if found:
        return tuple(found)
    own = provider.parse_configuration(DEFAULT_CONFIGURATION, operations[0], target)
    return (f"{name}:{DEFAULT_CONFIGURATION}",) if own is not None else ()


def _works(
    catalogue: InstalledCatalogue, name: str, target: Target, operations: Sequence[Operation]
) -> bool:
    if catalogue.unavailable(name, {}) is not None:
        return False
    provider = catalogue.provider(name)
    here = any(
        (one.kind, one.index) == (target.kind, target.index) for one in catalogue.targets(name, {})
    )
    return here and any(provider.supports(one, target) is None for one in operations)
