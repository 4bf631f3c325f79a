"""Makes a table from the records of experiments.

Makes the table of the device at hand in a given time, from verifications and trials.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from gemmetry.dispatches.analysis import fastest, geometric_mean, group_by_problem, record_id
from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.dispatches.profile import prepare, read_spec
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    NamedDispatch,
    Parameter,
    Target,
    parse_operation,
    parse_target,
)
from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    Outcome,
    RequestError,
    Stage,
    Verification,
)
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.domain.record import (
    Environment,
    Listener,
    Message,
    Record,
    ResultSet,
    StageProgress,
)
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import plural
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.engine.experiment import Experiment
from gemmetry.providers.base import traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.tuning.dispatcher.choosing import Chooser, Trial
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
    PlanRunner,
    named_plan,
)
from gemmetry.tuning.search import proposed

LEVEL = "standard"
"""The level of verification that a certificate needs: the lowest one with races and tails."""

_DECISIVE = ("torch", "cuda", "hip")
_TAILS = "tail_shapes"
"""The check that covers all classes of tails."""
_PASSED = "passed"
NEARLY = 1.03
"""Time over that of cuBLAS up to which a candidate is worth verifying: it may be faster at other
shapes."""
_IsVerified = Callable[[MatmulProblem, str], bool]
"""Whether a verification covers a problem and a candidate."""
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
    notes += _unproved([one for each in shapes.values() for one in each], is_verified)
    several = sum(len(entries) > 1 for entries in shapes.values())
    if several:
        notes.append(
            f"{plural(several, 'shape')} measured several times: the last time with cuBLAS "
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


def _unproved(entries: Iterable[TunedShape], is_verified: _IsVerified) -> list[str]:
    """What to say of times that no verification lets be used."""
    found = {
        f"{entry.problem.name} by {best}"
        for entry in entries
        if CUBLAS in entry.times_ns
        and (best := min(entry.times_ns, key=lambda name: entry.times_ns[name])) != CUBLAS
        and not is_verified(entry.problem, best)
    }
    if not found:
        return []
    return [
        f"{plural(len(found), 'time')} shorter than cuBLAS' cannot be used, as no verification at "
        f"level {LEVEL} covers those tails (first: {min(found)})"
    ]


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
    table: DispatchTable,
    result_sets: Sequence[ResultSet],
    provider_of: ProviderOf,
    proposed: Mapping[MatmulProblem, Iterable[str]] = MappingProxyType({}),
) -> list[NamedDispatch]:
    """What is to be verified next, so that each candidate nearly as fast as cuBLAS at a shape may
    be chosen for all classes of tails; one dispatch a candidate, the most promising one first, and
    last those that are `proposed` at a shape.

    The first small shape may cover all classes. The shapes at which a candidate was measured are
    the last resort: where it cannot be built for small ones.
    """
    near: dict[tuple[str, str], dict[MatmulProblem, float]] = {}
    for problem, names in proposed.items():
        for place, name in enumerate(names):
            ratios = near.setdefault((problem.signature, name), {})
            ratios[problem] = _NOT_MEASURED + place
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
}
"""Keys of a request that leaves them out: the products of torch's linear layers."""

_PROVED, _TRIED = 0.65, 0.9
"""Shares of the time after which the verification of kernels, and the measurements, end. What was
fast and is not verified has the rest."""
_STRIDE = 4
"""Shapes are measured in the order of every fourth one, as lists go from few rows to many."""
_NOT_MEASURED = 2.0
"""Ratio to cuBLAS of a proposal that was not measured, and the more the later it is proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table that is ready to be made."""

    spec: ProfileSpec
    target: Target
    operations: tuple[Operation, ...]
    """Those of the shapes, in an order of which each beginning has small and large ones."""
    proposed: Mapping[MatmulProblem, Sequence[str]]
    """What providers of kernels propose for each shape, the most promising first."""
    seconds: float
    experiment: Path
    """That of the verifications."""
    notes: tuple[str, ...]
    """Providers that are left out, and why."""


def prepare_table(spec: ProfileSpec, seconds: float) -> PreparedTable:
    """What is measured for a table of the device of `spec`; nothing runs.

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
    # Each provider alone may have another device as its default.
    target = max(planned.plan.targets, key=lambda one: one.is_gpu)
    if "device" not in spec.model_fields_set:
        spec = spec.model_copy(update={"device": (target.device or target.name,)})
    listed = list(planned.plan.operations)
    if not listed:
        raise RequestError(
            "no shape is given, for which kernels could be chosen", hint="Give --shapes."
        )
    operations = tuple(one for start in range(_STRIDE) for one in listed[start::_STRIDE])
    found: dict[MatmulProblem, list[str]] = {}
    used, notes = [], []
    for name, provider in given.items():
        kernels = catalogue.provider(name, provider.options)
        reasons = [kernels.supports(one, target) for one in operations]
        if None not in reasons:
            notes.append(f"{name} is left out: {reasons[0]}")
            continue
        used.append(provider)
        # Others are not verified for all tails, and take no tensors.
        if traits_of(name).baseline_rank is None and kernels.rebuilds_quickly:
            for one in operations:
                names = (candidate_of(name, each.name) for each in proposed(kernels, one, target))
                found.setdefault(problem_of(one), []).extend(names)
    return PreparedTable(
        spec=spec.model_copy(update={"providers": tuple(used)}),
        target=target,
        operations=operations,
        proposed=found,
        seconds=seconds,
        experiment=planned.experiment,
        notes=tuple(notes),
    )


def tune_table(
    prepared: PreparedTable, *, listener: Listener, fresh: bool = False, command: str = ""
) -> BuiltTable:
    """Verify what kernels' providers propose, measure it in turns with cuBLAS and with what
    libraries propose, verify what of these is fast, and build the table.

    The same request keeps what is verified, and measures anew.

    Raises:
        RequestError: the target is no device here, or gemmetry.matmul takes none of the shapes.
        EnvironmentFailure: the machine failed; what was verified is kept.
        KeyboardInterrupt: likewise.
    """
    from gemmetry.tuning.dispatcher.runtime import LONGER, TrialsOnDevice, versions_here

    began = time.monotonic()
    runner = PlanRunner(listener, command=command, fresh=fresh)
    trials: list[Trial] = []
    begun: set[NamedDispatch] = set()

    def is_late(share: float) -> bool:
        return time.monotonic() > began + share * prepared.seconds

    def known() -> tuple[BuiltTable, list[NamedDispatch]]:
        """The table of what was verified and measured, and the verifications that it lacks."""
        with ExitStack() as stack:
            sets = [stack.enter_context(one).result_set() for one in _opened(prepared.experiment)]
            found = BuiltTable(DispatchTable(target=prepared.target.name, device=""), ())
            if any(map(is_usable, chain.from_iterable(one.records for one in sets))):
                found = build_table(sets, load_provider)
            table = replace(
                found.table,
                device=prepared.target.product or prepared.target.name,
                versions=versions_here(),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                entries=tuple(one.guessed() for one in trials),
            )
            wanted = wanted_proofs(table, sets, load_provider, prepared.proposed)
        return replace(found, table=table), [one for one in wanted if one not in begun]

    def prove(share: float) -> None:
        while not is_late(share) and (wanted := known()[1]):
            listener(Message(f"proofs: {plural(len(wanted), 'candidate')} at level {LEVEL}"))
            values = {"verification_level": LEVEL, "profiling_enabled": False}
            plan = named_plan(prepared.spec, wanted, **values)
            if failure := runner.run(plan, prepared.experiment, lambda: is_late(share)):
                raise EnvironmentFailure(failure, hint="The same command continues.")
            begun.update(wanted)

    prove(_PROVED)
    device, left_out = TrialsOnDevice(known()[0].table), 0
    for done, operation in enumerate(prepared.operations):
        if trials and is_late(_TRIED):
            break
        total = len(prepared.operations)
        listener(StageProgress(Stage.MEASURE, done, total, str(operation)))
        trial = device.tried(problem_of(operation), LONGER)
        if trial is None:
            left_out += 1
        else:
            trials.append(trial)
    trials.sort(key=lambda one: one.problem)
    if not trials:
        raise RequestError(
            f"gemmetry.matmul leaves {prepared.operations[0]} to torch, and all other shapes given",
            hint="It chooses kernels for products in bf16 and f16.",
        )
    prove(1.0)
    built, _ = known()
    notes = list(built.notes)
    if left_out:
        notes.append(f"{plural(left_out, 'shape')} left out: gemmetry.matmul leaves them to torch")
    missing = len(prepared.operations) - len(trials) - left_out
    if missing:
        notes.append(f"{plural(missing, 'shape')} not measured: give more --minutes")
    chooser = Chooser(built.table)
    settled = [one.shown(chooser.is_eligible) for one in trials]
    notes += _unproved(settled, chooser.is_eligible)
    return BuiltTable(replace(built.table, entries=tuple(settled)), tuple(notes))


def _opened(folder: Path) -> Iterator[Experiment]:
    with suppress(RequestError):  # The time ended before it was begun.
        yield Experiment.open(folder)
