"""The plan of a search: its spaces, the experiments it measures in, and the baselines.

Measures the trials of a search with the engine, in experiments that grow and resume.

Runs a search and its finals.

Configurations to try first: what others propose, and what was fast for neighbouring shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.dispatches.profile import Prepared, prepare
from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    NamedDispatch,
    Plan,
    Target,
    parse_operation,
    parse_shard,
)
from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError, Verification
from gemmetry.domain.opening import read_json
from gemmetry.domain.operation import Operation, OperationKind, operation_name
from gemmetry.domain.options import KEYS
from gemmetry.domain.record import DispatchFinished, Event, Listener, Message, Record, ignore_events
from gemmetry.domain.settings import VERIFICATION_LEVELS
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec
from gemmetry.domain.units import format_ns, plural
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.providers.base import baseline_names, traits_of
from gemmetry.tuning import heuristics
from gemmetry.tuning.dispatcher.table import (
    octaves,
    operation_of,
    parts_of,
    problem_of,
    read_table,
    small_proofs,
)
from gemmetry.tuning.results import TuningResult, judge, with_search
from gemmetry.tuning.search import (
    EFFORTS,
    FULL,
    Limit,
    SearchSpace,
    SearchTrial,
    make_space,
    positions,
    search,
    space_of,
)
from gemmetry.tuning.simulation import FINALISTS, SEARCH_FOLDER, device_of, median_of, open_space
from gemmetry.tuning.strategies import make_strategy

SAMPLES = 9
"""Samples of a full trial, where ``--benchmark-repetitions`` does not say otherwise: short trials
then take one and three."""
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
    """Spec of the finals."""
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
        return self._plan(
            names,
            verification_level=VERIFICATION_LEVELS[0],
            benchmark_repetitions=max(1, round(samples * EFFORTS[effort])),
            processes=self.spec.processes or 1,  # type: ignore[attr-defined]
        )

    def finals_plan(self, chosen: Sequence[Sequence[int]]) -> Plan:
        """The plan of the finals: the chosen configurations of each space, and the baselines."""
        names = []
        for space, picks in zip(self.spaces, chosen, strict=True):
            names += [self.dispatch(space, one) for one in picks]
            names += [
                NamedDispatch(operation=space.operation, provider=name, configuration=one)
                for name, one in (map(parts_of, self.baselines) if picks else ())
            ]
        spec = self.spec
        return self._plan(names, providers=spec.providers, baseline=spec.baseline)

    def proofs_plan(self, chosen: Sequence[Sequence[int]]) -> Plan:
        """The plan that verifies each finalist at level standard."""
        names = [
            proof
            for space, picks in zip(self.spaces, chosen, strict=True)
            for one in picks
            for proof in self.proofs(space, one)
        ]
        # The spaces are those of the shard; at other sizes, their names belong to any shard.
        return self._plan(names, verification_level=_LEVEL, profiling_enabled=False, shard="")

    def _plan(self, names: Iterable[NamedDispatch], **values: object) -> Plan:
        """Plan of :func:`named_plan`, with the tuned provider alone unless `values` say
        otherwise."""
        own = tuple(one for one in self.spec.providers if one.name == self.provider)
        return named_plan(self.spec, names, **{"providers": own, **values})

    def proofs(self, space: SearchSpace, candidate: int) -> list[NamedDispatch]:
        """Dispatches to verify for a configuration of a space at level standard: the same kernel at
        small sizes with tails and without or, if it cannot be built for these or would be another
        kernel, at its own size."""
        own = self.dispatch(space, candidate)
        kernels, operation = self.kernels, space.operation
        if not kernels.rebuilds_quickly or operation.kind is not OperationKind.MATMUL:
            return [own]
        problems = small_proofs(problem_of(operation), space.configurations[candidate])
        try:
            small = [operation_of(one) for one in dict.fromkeys((problems[0], problems[-1]))]
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


def named_plan(spec: ProfileSpec, names: Iterable[NamedDispatch], **values: object) -> Plan:
    """The plan of a request with `values`, without a baseline and numbers of samples unless these
    have them, with the dispatches `names` in place of its own."""
    usual = {"benchmark_repetitions": None, "baseline": None}
    plan = prepare(spec.model_copy(update={**usual, **values})).plan
    named = tuple(dict.fromkeys(names))
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
        strategy: a name of :data:`gemmetry.tuning.strategies.STRATEGIES`.
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
    if not spaces:
        shard = prepared.plan.settings.shard
        why = f"shard {shard} has none of the shapes" if shard else "no shape is given"
        raise RequestError(
            f"there is nothing to tune: {why}", hint="Give other shapes, or fewer shards."
        )
    if len(refusals) == len(spaces):
        first, why = next(iter(refusals.items()))
        raise RequestError(
            f"there is nothing to tune: {first}: {why}",
            hint=f"`gemmetry list configurations --providers {name}` lists configurations.",
        )
    make_strategy(strategy, spaces, limit, 0)  # Its name and its library, before anything runs.
    baselines = _baselines(spec, name, provider, target, catalogue, spaces)
    level = spec.verification_level  # type: ignore[attr-defined]
    others = dict.fromkeys(parts_of(text)[0] for text in baselines)
    added = (ProviderSpec(name=other) for other in others if other != name)
    device = (target.device or target.name,)
    finals = spec.model_copy(update={"providers": (*spec.providers, *added), "device": device})
    if seeds:
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
    wanted, shard = plan.selection, parse_shard(plan.settings.shard)
    for operation in plan.operations:
        if shard is not None and not shard.takes(operation_name(operation)):
            continue
        space = space_of(provider, operation, target)
        if wanted is None:
            yield space
            continue
        lead = f"{operation_name(operation)}_"
        found = space.configurations
        kept = [one for one in found if wanted.matches(name, lead + one.name, operation)]
        yield make_space(operation, kept, target)


def _baselines(
    spec: ProfileSpec,
    name: str,
    provider: Provider,
    target: Target,
    catalogue: InstalledCatalogue,
    spaces: Sequence[SearchSpace],
) -> tuple[str, ...]:
    """Named baselines, else the default of an installed vendor library and the best of its
    algorithms where offered; else the provider's own default."""
    operations = [one.operation for one in spaces if len(one)]
    if spec.baseline:
        other, configuration = parts_of(spec.baseline)
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


Clock = Callable[[], float]
"""The time in s."""


class _TimeUp(BaseException):
    """Ends a run like an interrupt: what is measured is stored, and no ``except Exception`` on the
    way holds it up."""


class PlanRunner:
    """Carries out plans; those that are `fresh` begin each experiment anew once."""

    def __init__(self, listener: Listener, *, command: str, fresh: bool) -> None:
        self.listener, self._command, self._fresh = listener, command, fresh
        self._begun: set[Path] = set()

    def replaces(self, folder: Path) -> bool:
        """Whether the next run begins the experiment in `folder` anew."""
        return self._fresh and folder not in self._begun

    def run(self, plan: Plan, folder: Path, is_late: Callable[[], bool]) -> str:
        """Carry out a plan until it is late, which is looked at after each dispatch. Returns why
        the run failed; "" if it did not."""
        from gemmetry.engine import run

        def listen(event: Event) -> None:
            self.listener(event)
            if isinstance(event, DispatchFinished) and is_late():
                raise _TimeUp

        is_fresh = self.replaces(folder)
        self._begun.add(folder)
        try:
            return run(plan, folder, listener=listen, fresh=is_fresh, command=self._command).failure
        except _TimeUp:
            return ""


class EngineMeasure:
    """Measures trials. What is stored already is not measured again."""

    def __init__(
        self,
        prepared: PreparedTuning,
        listener: Listener,
        *,
        command: str,
        fresh: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._prepared, self._clock = prepared, clock
        self._runner = PlanRunner(listener, command=command, fresh=fresh)
        self._deadline = None if prepared.seconds is None else clock() + prepared.seconds
        self._done = self._measured = self._seconds = 0.0
        """Evaluations that are done, those of them that were measured by this process, and the
        time that these took."""
        self.failure = ""
        """Reason why the last run ended early."""

    def __call__(self, trials: Sequence[SearchTrial]) -> Mapping[SearchTrial, float | None]:
        """The medians of `trials` in ns; without those for which there was no time."""
        prepared, found = self._prepared, dict[SearchTrial, float | None]()
        for effort in sorted({one.effort for one in trials}):
            folder = prepared.search_folder(effort)
            names = {
                one: prepared.dispatch(prepared.spaces[one.space], one.candidate)
                for one in trials
                if one.effort == effort
            }
            known = self._stored(folder)
            missing = [one for one, name in names.items() if _key(name) not in known]
            self._done += sum(one.cost for one in names if one not in missing)
            if missing and not self.failure and not self._is_late():
                self._runner.listener(Message(self._progress()))
                began = self._clock()
                self._run(prepared.search_plan(effort, (names[one] for one in missing)), folder)
                known = self._stored(folder)
                cost = sum(one.cost for one in missing if _key(names[one]) in known)
                self._seconds += self._clock() - began
                self._measured += cost
                self._done += cost
            found |= {
                one: median_of(known[_key(name)])
                for one, name in names.items()
                if _key(name) in known
            }
        return found

    def _progress(self) -> str:
        """Progress of the whole search, which measures batch by batch."""
        total = sum(self._prepared.limit.of(space) for space in self._prepared.spaces)
        text = f"search: {self._done:.4g} of {plural(total, 'evaluation')}"
        if not self._measured:
            return text
        left = self._seconds / self._measured * (total - self._done)
        if self._deadline is not None:
            left = min(left, self._deadline - self._clock())
        return f"{text}, about {format_ns(1e9 * max(left, 0.0))} left"

    def finals(self, chosen: Sequence[Sequence[int]]) -> None:
        """Measure the finalists of each space next to the baselines, however late it is."""
        self._deadline = None
        self._run(self._prepared.finals_plan(chosen), self._prepared.experiment)

    def proven(self, chosen: Sequence[Sequence[int]]) -> list[list[int]]:
        """The finalists that pass a verification at level standard."""
        from gemmetry.engine.experiment import Experiment

        prepared = self._prepared
        self._run(prepared.proofs_plan(chosen), prepared.proofs_folder)
        with Experiment.open(prepared.proofs_folder) as stored:
            passed = {
                (record.operation, record.configuration)
                for record in stored.records()
                if record.verdict.status is Verification.PASSED
            }
        return [
            [one for one in picks if passed.issuperset(map(_key, prepared.proofs(space, one)))]
            for space, picks in zip(prepared.spaces, chosen, strict=True)
        ]

    def _run(self, plan: Plan, folder: Path) -> None:
        self.failure = self._runner.run(plan, folder, self._is_late)

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock() > self._deadline

    def _stored(self, folder: Path) -> dict[tuple[str, str], Record]:
        from gemmetry.engine.experiment import Experiment

        if self._runner.replaces(folder):
            return {}
        try:
            stored = Experiment.open(folder)
        except RequestError:
            return {}
        with stored:
            return {
                (record.operation, record.configuration): record
                for record in stored.records()
                if record.provider == self._prepared.provider
            }


def _key(name: NamedDispatch) -> tuple[str, str]:
    """Operation and configuration, as records name them."""
    return operation_name(name.operation), name.configuration


@dataclass(frozen=True, slots=True)
class TuningRun:
    """Result of a search, and whether the machine failed meanwhile."""

    result: TuningResult
    had_finalists: bool
    failure: str = ""

    @property
    def exit_status(self) -> int:
        """Exit status. 0: every shape has a winner or, without finalists, a working configuration.
        1: a shape has none. 3: the machine failed."""
        if self.failure:
            return EnvironmentFailure.exit_status
        shapes = self.result.shapes
        works = (one.winner if self.had_finalists else one.tried > one.failed for one in shapes)
        return int(not all(works))


def run_tuning(
    prepared: PreparedTuning,
    *,
    listener: Listener = ignore_events,
    fresh: bool = False,
    command: str = "",
) -> TuningRun:
    """Search, measure the finalists next to the baselines, and judge them. Everything is stored in
    the experiment's folder, from which the same request resumes.

    Raises:
        RequestError: the target is no device of this machine.
        PlanMismatchError: the folder has results that were measured in another way.
        EnvironmentFailure: disk full ...; what was measured is kept.
        KeyboardInterrupt: what was measured is kept.
    """
    from gemmetry.engine.experiment import Experiment

    if prepared.target.index is None:
        raise RequestError(
            f"tune measures, and {prepared.target} is no device of this machine",
            hint="`gemmetry doctor` shows the devices; --dry-run shows what would be searched.",
        )
    strategy = make_strategy(prepared.strategy, prepared.spaces, prepared.limit, prepared.seed)
    measure = EngineMeasure(prepared, listener, command=command, fresh=fresh)
    history = search(strategy, measure)
    chosen = [history.ranked(i)[: prepared.finalists] for i in range(len(prepared.spaces))]
    had_finalists = any(chosen) and not measure.failure
    if prepared.has_proofs and had_finalists:
        count = sum(map(len, chosen))
        listener(Message(f"proofs: {plural(count, 'finalist')} at level standard"))
        chosen = measure.proven(chosen)
        had_finalists = not measure.failure
    count = sum(map(len, chosen))
    judged, device = {}, ""
    has_finals = bool(count) and not measure.failure
    if has_finals:
        listener(Message(f"finals: {plural(count, 'configuration')} next to the baselines"))
        measure.finals(chosen)
        with Experiment.open(prepared.experiment) as stored:
            results = stored.result_set()
            device = device_of(results)
            judged = judge(
                results,
                provider=prepared.provider,
                operations=[space.operation for space in prepared.spaces],
                baselines=prepared.baselines,
            )
    result = TuningResult(
        provider=prepared.provider,
        strategy=prepared.strategy,
        limit=str(prepared.limit),
        seed=prepared.seed,
        baselines=prepared.baselines,
        shapes=with_search(
            judged, prepared.spaces, history, prepared.refusals, has_finals=had_finalists
        ),
        is_complete=history.is_complete,
        device=device,
        experiment=prepared.experiment if has_finals else None,
        proofs=prepared.proofs_folder if has_finals and prepared.has_proofs else None,
    )
    return TuningRun(result, had_finalists, measure.failure)


_MOST = 8
"""Seeds of a shape from one source."""
_OF_NEIGHBOUR = 3
"""Configurations that a neighbouring shape contributes."""
_FARTHEST = 4.0
"""Octaves along M, N and K beyond which a shape is no neighbour."""

_Known = Mapping[Operation, Mapping[str, float]]
"""Operation -> configuration -> time in ns."""


def seeded(
    spaces: Sequence[SearchSpace], sources: Iterable[str], provider: str, target: Target
) -> tuple[SearchSpace, ...]:
    """`spaces` with seeds.

    Args:
        sources: ``heuristics``, files of tables or of searches, folders of experiments.
        provider: whose configurations are searched.
        target: the device.

    Raises:
        RequestError: a source cannot be read, or knows nothing of the provider.
        TableError: a table is damaged. EnvironmentFailure: the heuristics crashed.
    """
    found: list[dict[int, None]] = [{} for _ in spaces]
    for source in sources:
        for seeds, more in zip(found, _from(source, spaces, provider, target), strict=True):
            seeds.update(dict.fromkeys(more[:_MOST]))
    return tuple(replace(one, seeds=tuple(seeds)) for one, seeds in zip(spaces, found, strict=True))


def _from(
    source: str, spaces: Sequence[SearchSpace], provider: str, target: Target
) -> list[list[int]]:
    if source == heuristics.NAME:
        operations = [one.operation for one in spaces if len(one)]
        proposed = heuristics.proposals(operations, provider, target)
        return [heuristics.nearest(one, proposed.get(one.operation, ())) for one in spaces]
    known = _known(Path(source), provider)
    if not known:
        raise RequestError(
            f"{source} has no times of {provider}, from which seeds could be taken",
            hint="Give a table or an experiment with configurations of this provider.",
        )
    return [_of_neighbours(one, known) for one in spaces]


def _known(path: Path, provider: str) -> _Known:
    if path.is_file() and _is_table(path):
        return {
            operation_of(entry.problem): own
            for entry in read_table(path).entries
            if (own := {parts_of(name)[1]: ns for name, ns in entry.times_ns.items()
                        if parts_of(name)[0] == provider})
        }  # fmt: skip
    stored = open_space(path)
    if stored.provider != provider:
        return {}
    return {
        parse_operation(name): {
            one.configuration: one.median_ns for one in times if one.median_ns is not None
        }
        for name, times in stored.operations.items()
    }


def _is_table(path: Path) -> bool:
    """Whether a file is a dispatcher's table, rather than a stored search."""
    try:
        return "entries" in read_json(path)
    except (RequestError, TypeError):
        return False


def _of_neighbours(space: SearchSpace, known: _Known) -> list[int]:
    """The fastest configurations of the nearest shapes, the nearest shape first."""
    mine = space.operation
    near = []
    for one, times in known.items():
        distance = octaves(mine.matmul_shape, one.matmul_shape)
        if one.signature == mine.signature and distance <= _FARTHEST:
            near.append((distance, str(one), times))
    places = positions(space)
    found: dict[int, None] = {}
    for *_, times in sorted(near, key=lambda one: one[:2]):
        ranked = [places[name] for name in sorted(times, key=times.__getitem__) if name in places]
        found |= dict.fromkeys(ranked[:_OF_NEIGHBOUR])
    return list(found)
