"""Makes a table from the records of experiments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.dispatches.analysis import fastest, geometric_mean, group_by_problem, record_id
from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    NamedDispatch,
    Parameter,
    parse_target,
)
from gemmetry.domain.errors import GemmetryError, Outcome, RequestError, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.record import Environment, Record, ResultSet
from gemmetry.domain.units import counted
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
    is_choice = (
        record.configuration == DEFAULT_CONFIGURATION or record.facts.algorithms_tried is not None
    )
    is_alias = is_choice and _CONFIGURATION.fullmatch(chosen)
    return candidate_of(record.provider, chosen if is_alias else record.configuration)


def is_usable(record: Record) -> bool:
    """Whether a table or an evaluation may use a record: of a correct matmul without declared
    exceptions."""
    return (
        record.outcome is Outcome.OK
        and record.verdict.status is Verification.PASSED
        and not record.facts.declared
        and parse_operation(record.operation).kind is OperationKind.MATMUL
    )


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
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(candidate_name(record), []).append(record)
    found = {name: fastest(group) for name, group in groups.items()}
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
        found = _parameters(record, name, provider_of)
        if name != CUBLAS and found:
            parameters[name] = dict(found)
    certificates, notes = _certificates(result_sets, parameters, device, provider_of)
    known = {(one.signature, one.candidate): one for one in certificates}

    def is_verified(problem: MatmulProblem, candidate: str) -> bool:
        found = known.get((problem.signature, candidate))
        own = Configuration(parts_of(candidate)[1], parameters.get(candidate, {}))
        return found is not None and found.covers(tail_class(problem, own))

    shapes: dict[MatmulProblem, list[TunedShape]] = {}
    for results in result_sets:
        for entry in _entries(results, is_verified):
            shapes.setdefault(entry.problem, []).append(entry)
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
    measured = [r for r in results.records if is_usable(r) and r.measurement is not None]
    shapes, kept = [], []
    for group in group_by_problem(measured).values():
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
        choice = CUBLAS
        if rival and comparison and comparison.verdict is Difference.FASTER:
            choice = candidate_name(rival)
        found.append(
            TunedShape(
                signature=problem.signature,
                shape=problem.shape,
                choice=choice,
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

    classes: dict[tuple[str, str], set[str]] = {}
    first: dict[tuple[str, str], tuple[Record, ResultSet]] = {}
    wrong = _wrong(result_sets)
    for results in result_sets:
        for record in results.records:
            if not is_usable(record) or missing_checks(record.verdict, LEVEL):
                continue
            candidate = candidate_name(record)
            problem = problem_of(parse_operation(record.operation))
            key = (problem.signature, candidate)
            first.setdefault(key, (record, results))
            covered = classes.setdefault(key, set())
            # At other shapes, a choice of the provider is another kernel.
            is_named = candidate == candidate_of(record.provider, record.configuration)
            if is_named and record.verdict.checks.get(_TAILS) == _PASSED:
                covered.add(ANY_CLASS)
            own = Configuration(parts_of(candidate)[1], parameters.get(candidate, {}))
            covered.add(tail_class(problem, own))
    found, notes = [], []
    for (signature, candidate), (record, results) in first.items():
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
        found.append(
            Certificate(
                signature=signature,
                candidate=candidate,
                level=LEVEL,
                classes=tuple(sorted(classes[signature, candidate])),
                operation=record.operation,
                digest=digest,
                versions=dict(environment.packages),
                device=device,
                date=results.created,
            )
        )
    return sorted(found, key=lambda one: (one.signature, one.candidate)), notes


def _wrong(result_sets: Iterable[ResultSet]) -> set[tuple[str, str]]:
    """Signature and candidate of what was wrong at any shape."""
    return {
        (problem_of(operation).signature, candidate_name(record))
        for results in result_sets
        for record in results.records
        if record.verdict.status is Verification.FAILED
        and (operation := parse_operation(record.operation)).kind is OperationKind.MATMUL
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
    promising = sorted(near.keys() - _wrong(result_sets), key=lambda key: min(near[key].values()))
    for key in promising:
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
