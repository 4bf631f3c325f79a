"""Makes a table from the records of experiments.

Makes the table of a device in a given time: searches, the best of each provider in turns with
torch, and the verifications that let them be chosen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.dispatches.analysis import fastest, geometric_mean, group_by_problem, record_id
from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.dispatches.profile import prepare, read_spec
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    NamedDispatch,
    Parameter,
    parse_operation,
    parse_target,
)
from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    Outcome,
    RequestError,
    Verification,
)
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.record import Environment, Listener, Message, Record, ResultSet
from gemmetry.domain.settings import VERIFICATION_LEVELS
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import counted
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.engine.experiment import Experiment
from gemmetry.providers.base import traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.tuning.dispatcher.table import (
    ANY_CLASS,
    CUBLAS,
    Certificate,
    DispatchTable,
    MatmulProblem,
    ProviderOf,
    TunedShape,
    candidate_of,
    dispatch_of,
    operation_of,
    parts_of,
    problem_of,
    small_proofs,
    source_digest,
    tail_class,
)
from gemmetry.tuning.run import (
    PROOFS_FOLDER,
    EngineMeasure,
    PlanRunner,
    PreparedTuning,
    named_plan,
    prepare_tuning,
)
from gemmetry.tuning.search import DEFAULT_STRATEGY, FULL, Limit, search
from gemmetry.tuning.strategies import make_strategy

LEVEL = "standard"
"""The level of verification that a certificate needs: the lowest one with races and tails."""

_DECISIVE = ("torch", "cuda", "hip")
_TAILS = "tail_shapes"
"""The check that covers all classes of tails."""
_PASSED = "passed"
NEARLY = 1.03
"""Time over that of cuBLAS up to which a candidate is worth verifying: it may be faster at other
shapes."""
_CONFIGURATION = re.compile(r"\w+", re.ASCII)
"""Names of configurations; other texts describe what a library chose."""


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table, and what was left out of it."""

    table: DispatchTable
    notes: tuple[str, ...]


def candidate_name(record: Record) -> str:
    """The candidate that a record measured: ``default``, and the best of several, is the
    configuration that the provider chose, where that is known, as the choice is another one for
    another shape."""
    chosen = record.facts.default_configuration or ""
    own = record.configuration
    is_choice = own == DEFAULT_CONFIGURATION or record.facts.algorithms_tried is not None
    is_alias = is_choice and _CONFIGURATION.fullmatch(chosen)
    return candidate_of(record.provider, chosen if is_alias else own)


def is_usable(record: Record) -> bool:
    """Whether a table or an evaluation may use a record: of a correct matmul without declared
    exceptions."""
    return (
        record.outcome is Outcome.OK
        and record.verdict.status is Verification.PASSED
        and not record.facts.declared
        and parse_operation(record.operation).kind is OperationKind.MATMUL
    )


def is_timed(record: Record) -> bool:
    """Whether such a record has a time."""
    return is_usable(record) and record.measurement is not None


def _parameters(record: Record, candidate: str, provider_of: ProviderOf) -> Mapping[str, Parameter]:
    """The parameters of the candidate that a record measured."""
    if candidate == candidate_of(record.provider, record.configuration):
        return record.configuration_parameters
    try:
        dispatch = dispatch_of(record.operation, candidate, record.target, provider_of)
    except GemmetryError:  # A choice that cannot be requested by its name.
        return record.configuration_parameters
    return dispatch.configuration.parameters


def best_times(records: Iterable[Record]) -> dict[str, Record]:
    """Candidate -> its record with the shortest median."""
    found = {name: fastest(group) for name, group in grouped(records, candidate_name).items()}
    return {name: record for name, record in found.items() if record is not None}


def build_table(result_sets: Sequence[ResultSet], provider_of: ProviderOf) -> BuiltTable:
    """The table of the one device that the experiments ran on.

    Raises:
        RequestError: nothing in them can be used, or they are of several devices.
    """
    records = [r for results in result_sets for r in results.records if is_usable(r)]
    target = _only({record.target for record in records}, "targets")
    environments = [e for results in result_sets for e in results.environments.values()]
    device = _device(environments, target)
    parameters = {}
    for record in records:
        name = candidate_name(record)
        if name != CUBLAS and (found := _parameters(record, name, provider_of)):
            parameters[name] = dict(found)
    certificates, notes = _certificates(result_sets, parameters, device, provider_of)
    known = {(one.signature, one.candidate): one for one in certificates}

    def is_verified(problem: MatmulProblem, candidate: str) -> bool:
        found = known.get((problem.signature, candidate))
        own = Configuration(parts_of(candidate)[1], parameters.get(candidate, {}))
        return found is not None and found.covers(tail_class(problem, own))

    measured = (entry for results in result_sets for entry in _entries(results, is_verified))
    shapes = grouped(measured, lambda entry: entry.problem)
    unproved = {
        f"{entry.problem.name} by {best}"
        for entries in shapes.values()
        for entry in entries
        if CUBLAS in entry.times_ns
        and (best := min(entry.times_ns, key=lambda name: entry.times_ns[name])) != CUBLAS
        and not is_verified(entry.problem, best)
    }
    if unproved:
        notes.append(
            f"{counted(len(unproved), 'time')} shorter than cuBLAS' cannot be used, as no "
            f"verification at level {LEVEL} covers those tails (first: {min(unproved)})"
        )
    several = sum(len(entries) > 1 for entries in shapes.values())
    if several:
        notes.append(
            f"{counted(several, 'shape')} measured several times: the last time with cuBLAS "
            "decides; others add the times of further candidates to it, in proportion"
        )
    table = DispatchTable(
        target=target,
        device=device,
        versions=versions_of(environments),
        created=max((results.created for results in result_sets), default=""),
        experiments=tuple(dict.fromkeys(results.title for results in result_sets)),
        parameters=parameters,
        certificates=tuple(certificates),
        entries=tuple(_merged(entries) for _, entries in sorted(shapes.items())),
    )
    return BuiltTable(table, tuple(notes))


def versions_of(environments: Iterable[Environment]) -> dict[str, str]:
    """The versions that decide how long cuBLAS takes. Those of compilers are in the digests.

    Raises:
        RequestError: two environments have different versions of one.
    """
    found: dict[str, str] = {}
    for one in environments:
        own = {"driver": one.driver} if one.driver else {}
        own |= {name: text for name, text in one.packages.items() if name in _DECISIVE}
        for name, text in own.items():
            if found.setdefault(name, text) != text:
                raise RequestError(
                    f"the experiments ran with {name} {found[name]} and {text}",
                    hint="Build a table from experiments with the same versions.",
                )
    return found


def _only(values: set[str], what: str) -> str:
    if not values:
        raise RequestError(
            "the experiments have no correct matmul, from which a table could be made",
            hint="Run `gemmetry profile` with verification; `gemmetry report` shows its outcomes.",
        )
    if len(values) > 1:
        raise RequestError(
            f"the experiments are of several {what}: {', '.join(sorted(values))}",
            hint="Build one table for each of them.",
        )
    return next(iter(values))


def _device(environments: Sequence[Environment], target: str) -> str:
    if not parse_target(target).is_gpu:
        return target
    return _only({name for one in environments for name in one.devices}, "devices")


_IsVerified = Callable[[MatmulProblem, str], bool]
"""Whether a verification covers a problem and a candidate."""


def _entries(results: ResultSet, is_verified: _IsVerified) -> list[TunedShape]:
    """Each shape, with the fastest candidate besides cuBLAS that may be chosen compared with
    cuBLAS, all judged together."""
    shapes, kept = [], []
    for group in group_by_problem(filter(is_timed, results.records)).values():
        problem, bests = problem_of(parse_operation(group[0].operation)), best_times(group)
        names = (name for name in bests if name != CUBLAS and is_verified(problem, name))
        rival = fastest(bests[name] for name in names)
        shapes.append((problem, bests, rival))
        if rival is not None and CUBLAS in bests:
            kept += [bests[CUBLAS], rival]
    verdicts: dict[object, Comparison | None] = {}
    if kept:
        (compared,) = compare_with_baseline(replace(results, records=kept), CUBLAS).candidates
        verdicts = {record_id(change.after): change.comparison for change in compared.changes}
    found = []
    for problem, bests, rival in shapes:
        comparison = None if rival is None else verdicts.get(record_id(rival))
        is_faster = comparison is not None and comparison.verdict is Difference.FASTER
        found.append(
            TunedShape(
                signature=problem.signature,
                shape=problem.shape,
                choice=candidate_name(rival) if rival and is_faster else CUBLAS,
                verdict="" if comparison is None else str(comparison.verdict),
                ratio=None if comparison is None else comparison.ratio,
                times_ns={name: median_ns(record) for name, record in sorted(bests.items())},
            )
        )
    return found


def _merged(entries: Sequence[TunedShape]) -> TunedShape:
    """One entry of several of a shape: the last one with cuBLAS, else the last, with the times of
    candidates that only others measured, a search above all. Those are multiplied by how much
    longer the candidates in both took: another run has other clocks. They rank candidates at other
    shapes; what is chosen at this one was compared with cuBLAS in turns."""
    # Of several, max() returns the first.
    main = max(reversed(entries), key=lambda one: CUBLAS in one.times_ns)
    times = dict(main.times_ns)
    for entry in entries:
        shared = main.times_ns.keys() & entry.times_ns.keys()
        factor = geometric_mean(main.times_ns[name] / entry.times_ns[name] for name in shared)
        if factor is not None and entry is not main:
            for name, ns in entry.times_ns.items():
                times.setdefault(name, ns * factor)
    return replace(main, times_ns=dict(sorted(times.items())))


def _certificates(
    result_sets: Sequence[ResultSet],
    parameters: Mapping[str, Mapping[str, Parameter]],
    device: str,
    provider_of: ProviderOf,
) -> tuple[list[Certificate], list[str]]:
    """One for each signature and candidate of which a verification passed, and none failed."""
    from gemmetry.verification.protocol import missing_checks

    verified = (
        (record, results)
        for results in result_sets
        for record in results.records
        if is_usable(record) and not missing_checks(record.verdict, LEVEL)
    )
    groups = grouped(verified, lambda one: _key(one[0]))
    found, notes, wrong = [], [], _wrong(result_sets)
    for (signature, candidate), group in groups.items():
        record, results = group[0]
        if candidate == CUBLAS:
            continue
        if (signature, candidate) in wrong:
            notes.append(f"{candidate} of {signature} was wrong at a shape and is not certified")
            continue
        kept = record.facts.source_path
        folder = Path(results.path, kept).parent if kept and results.path else None
        try:
            dispatch = dispatch_of(record.operation, candidate, record.target, provider_of)
            digest = source_digest(provider_of(dispatch.provider), dispatch, kept=folder)
        except GemmetryError as error:
            notes.append(f"{candidate} of {signature} is not certified: {error.message}")
            continue
        environment = results.environments.get(record.environment_id, Environment())
        own = Configuration(parts_of(candidate)[1], parameters.get(candidate, {}))
        classes = {name for one, _ in group for name in _classes(one, own)}
        found.append(
            Certificate(
                signature=signature,
                candidate=candidate,
                level=LEVEL,
                classes=tuple(sorted(classes)),
                operation=record.operation,
                digest=digest,
                versions=dict(environment.packages),
                device=device,
                date=results.created,
            )
        )
    return sorted(found, key=lambda one: (one.signature, one.candidate)), notes


def _key(record: Record) -> tuple[str, str]:
    """Signature and candidate of a matmul."""
    return problem_of(parse_operation(record.operation)).signature, candidate_name(record)


def _classes(record: Record, own: Configuration) -> Iterator[str]:
    """The classes of tails that a verification covers, of a candidate's own configuration."""
    # At other shapes, a choice of the provider is another kernel.
    is_named = own.name == record.configuration
    if is_named and record.verdict.checks.get(_TAILS) == _PASSED:
        yield ANY_CLASS
    yield tail_class(problem_of(parse_operation(record.operation)), own)


def _wrong(result_sets: Iterable[ResultSet]) -> set[tuple[str, str]]:
    """Signature and candidate of what was wrong at any shape."""
    return {
        _key(record)
        for results in result_sets
        for record in results.records
        if record.verdict.status is Verification.FAILED
        and parse_operation(record.operation).kind is OperationKind.MATMUL
    }


def wanted_proofs(
    table: DispatchTable, result_sets: Sequence[ResultSet], provider_of: ProviderOf
) -> list[NamedDispatch]:
    """What is to be verified next, so that each candidate nearly as fast as cuBLAS at a shape may
    be chosen for all classes of tails; one dispatch a candidate, the most promising one first.

    The first small shape may cover all classes. The shapes at which a candidate was measured are
    the last resort: where it cannot be built for small ones.
    """
    near: dict[tuple[str, str], dict[MatmulProblem, float]] = {}
    for entry in table.entries:
        library = entry.times_ns.get(CUBLAS, 0.0)
        for name, ns in entry.times_ns.items():
            if name != CUBLAS and ns <= NEARLY * library:
                near.setdefault((entry.signature, name), {})[entry.problem] = ns / library
    done = {
        (record.operation, candidate_of(record.provider, record.configuration))
        for results in result_sets
        for record in results.records
        if record.measurement is None or record.verdict.checks.get(_TAILS)
    }
    found, certified = [], table.certified
    for key in sorted(near.keys() - _wrong(result_sets), key=lambda key: min(near[key].values())):
        name = key[1]
        own, known = table.configuration(name), certified.get(key)
        needed = {tail_class(one, own) for one in near[key]}
        problems = sorted(near[key], key=lambda one: one.shape)
        provider, configuration = parts_of(name)
        if provider_of(provider).rebuilds_quickly:
            first, *others = small_proofs(problems[-1], own)
            others.sort(key=lambda one: tail_class(one, own) not in needed)
            problems = [first, *others, *problems]
        for one in problems:
            is_covered = known is not None and known.covers(tail_class(one, own))
            if not is_covered and (one.name, name) not in done:
                found.append(
                    NamedDispatch(
                        operation=operation_of(one), configuration=configuration, provider=provider
                    )
                )
                break
    return found


def median_ns(record: Record) -> float:
    """The median of a record that has one."""
    assert record.measurement is not None
    return record.measurement.median_ns


USUAL = {
    "name": "dispatcher",
    "layouts": "tn",
    "dtypes": "bf16",
    "distribution": "normal",
    "verification_level": VERIFICATION_LEVELS[0],
    "time_budget": "50ms",
    "processes": 1,
}
"""Keys of a request that leaves them out: the products of torch's linear layers. One launch of each
is verified at its own size; the proofs have every check, at small sizes."""

_FINALISTS = 3
"""The most configurations of each shape and provider that are measured in turns with torch."""
_FINAL_SECONDS = 1.0
"""A dispatch that is measured in turns, on an H200."""
_SEARCHED, _MEASURED = 0.3, 0.65
"""Shares of the time after which the searches, and the measurements in turns, end."""
_TRIAL_SECONDS = 0.3
"""A trial of a search on an H200 (benchmarks/tuner/campaign.sh)."""
_SAMPLES = 3
"""Of a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table that is ready to be made."""

    spec: ProfileSpec
    searches: tuple[PreparedTuning, ...]
    """By provider."""
    libraries: tuple[str, ...]
    """Candidates of each shape that no search finds: cuBLAS, and the best of a library."""
    seconds: float
    experiment: Path
    notes: tuple[str, ...]
    """Providers that are left out, and why."""

    @property
    def finalists(self) -> int:
        """Configurations of each shape and provider for which there is time."""
        share = (_MEASURED - _SEARCHED) * self.seconds / len(self.searches[0].spaces)
        most = (share / _FINAL_SECONDS - len(self.libraries)) / len(self.searches)
        return max(1, min(_FINALISTS, int(most)))

    @property
    def folders(self) -> list[Path]:
        """The experiments from which the table is made."""
        searched = [one.search_folder(FULL) for one in self.searches]
        return [*searched, self.experiment, self.experiment / PROOFS_FOLDER]


def prepare_table(spec: ProfileSpec, seconds: float) -> PreparedTable:
    """The searches that a table of the device of `spec` needs; nothing runs.

    Args:
        spec: its shapes, and its providers; without any, all that work here.
        seconds: how long making the table may take.

    Raises:
        RequestError: there is no shape, no device, or no provider for the shapes.
    """
    missing = {key: value for key, value in USUAL.items() if key not in spec.model_fields_set}
    spec = read_spec(spec, missing)
    catalogue = InstalledCatalogue()
    own = parts_of(CUBLAS)[0]
    here = [one for one in catalogue.provider_names() if catalogue.unavailable(one, {}) is None]
    given = {one.name: one for one in spec.providers or [ProviderSpec(name=name) for name in here]}
    given.setdefault(own, ProviderSpec(name=own))
    spec = spec.model_copy(update={"providers": tuple(given.values())})
    planned = prepare(spec)
    folder = planned.experiment
    # Each provider alone may have another device as its default.
    target = max(planned.plan.targets, key=lambda one: one.is_gpu)
    if "device" not in spec.model_fields_set:
        spec = spec.model_copy(update={"device": (target.device or target.name,)})
    searches, libraries, notes = [], [CUBLAS], []
    for name, provider in given.items():
        if best := traits_of(name).best_configuration:
            libraries.append(candidate_of(name, best))
            continue
        changes = {"providers": (provider,), "experiment": str(folder / name),
                   "benchmark_repetitions": _SAMPLES}  # fmt: skip
        own_spec = spec.model_copy(update=changes)
        try:
            searches.append(prepare_tuning(own_spec, strategy=DEFAULT_STRATEGY, limit=Limit()))
        except RequestError as error:
            notes.append(f"{name} is left out: {error.message}")
    if not searches:
        raise RequestError("; ".join(notes), hint="Give other shapes or --providers.")
    used = {one.provider for one in searches} | {parts_of(one)[0] for one in libraries}
    kept = tuple(one for name, one in given.items() if name in used)
    return PreparedTable(
        spec=spec.model_copy(update={"providers": kept}),
        searches=tuple(searches),
        libraries=tuple(libraries),
        seconds=seconds,
        experiment=folder,
        notes=tuple(notes),
    )


def tune_table(
    prepared: PreparedTable, *, listener: Listener, fresh: bool = False, command: str = ""
) -> BuiltTable:
    """Search, measure the best in turns with torch, verify them, and build the table. The same
    request continues what is not complete.

    Raises:
        RequestError: no time was left for a single measurement, or the target is no device here.
        EnvironmentFailure: the machine failed; what was measured is kept.
        KeyboardInterrupt: likewise.
    """
    began = time.monotonic()
    runner = PlanRunner(listener, command=command, fresh=fresh)

    def run(names: Iterable[NamedDispatch], folder: Path, share: float, **values: object) -> None:
        plan = named_plan(prepared.spec, names, **values)
        end = began + share * prepared.seconds
        if failure := runner.run(plan, folder, lambda: time.monotonic() > end):
            raise EnvironmentFailure(failure, hint="The same command continues.")

    *_, finals, proofs = prepared.folders
    most = prepared.finalists
    wide = [one for one in prepared.searches if max(map(len, one.spaces)) > _FINALISTS]
    names = []
    for one in prepared.searches:
        picks = [space.order for space in one.spaces]
        if one in wide:
            left = began + prepared.seconds * _SEARCHED - time.monotonic()
            picks = _searched(one, left / len(wide), listener, fresh=fresh, command=command)
            wide.remove(one)
        for space, chosen in zip(one.spaces, picks, strict=True):
            names += [one.dispatch(space, pick) for pick in chosen[:most]]
    operations = {space.operation: None for one in prepared.searches for space in one.spaces}
    for candidate in prepared.libraries:
        provider, configuration = parts_of(candidate)
        names += [NamedDispatch(operation=one, configuration=configuration, provider=provider)
                  for one in operations]  # fmt: skip
    names = list(dict.fromkeys(names))
    listener(Message(f"{counted(len(names), 'dispatch', 'dispatches')} in turns with torch"))
    order = list(operations)  # Shape by shape, should the time not suffice for all.
    run(sorted(names, key=lambda one: order.index(one.operation)), finals, _MEASURED)
    begun: set[NamedDispatch] = set()
    while True:
        with ExitStack() as stack:
            sets = [stack.enter_context(one).result_set() for one in _opened(prepared.folders)]
            built = build_table(sets, load_provider)
            wanted = wanted_proofs(built.table, sets, load_provider)
        wanted = [one for one in wanted if one not in begun]
        if not wanted or time.monotonic() > began + prepared.seconds:
            return built
        listener(Message(f"proofs: {counted(len(wanted), 'candidate')} at level {LEVEL}"))
        run(wanted, proofs, 1.0, verification_level=LEVEL, profiling_enabled=False)
        begun |= set(wanted)


def _searched(
    one: PreparedTuning, seconds: float, listener: Listener, *, fresh: bool, command: str
) -> list[list[int]]:
    """The configurations of each space: the fastest that were found in so many seconds, then those
    that are predicted to be fast."""
    count = max(_FINALISTS, int(seconds / _TRIAL_SECONDS / len(one.spaces)))
    timed = replace(one, limit=Limit(count=count), seconds=seconds)
    measure = EngineMeasure(timed, listener, command=command, fresh=fresh)
    history = search(make_strategy(timed.strategy, timed.spaces, timed.limit, timed.seed), measure)
    if measure.failure:
        raise EnvironmentFailure(measure.failure, hint="The same command continues.")
    return [
        list(dict.fromkeys([*history.ranked(index), *space.order]))
        for index, space in enumerate(timed.spaces)
    ]


def _opened(folders: Iterable[Path]) -> Iterator[Experiment]:
    for folder in folders:
        with suppress(RequestError):  # The time ended before it was begun.
            yield Experiment.open(folder)
