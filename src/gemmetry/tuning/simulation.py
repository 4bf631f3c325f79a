"""Replays a stored exhaustive run, so that strategies are compared without measuring anything.

Exhaustive runs as they are stored: the records of an experiment, or a compact file of them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from gemmetry.dispatches.analysis import geometric_mean, group_by_problem
from gemmetry.domain.dispatch import Configuration, Parameter, Target, parse_operation, parse_target
from gemmetry.domain.errors import NameSyntaxError, Outcome, RequestError, Verification
from gemmetry.domain.opening import parsed_json, read_whole
from gemmetry.domain.record import Environment, Record, ResultSet
from gemmetry.tuning.search import (
    DEFAULT_STRATEGY,
    EFFORTS,
    EXHAUSTIVE,
    Limit,
    SearchSpace,
    SearchTrial,
    make_space,
    search,
)
from gemmetry.tuning.strategies import make_strategy

BUDGETS = (0.01, 0.05, 0.10)
"""Shares of the evaluations of an exhaustive search that are compared."""
SEEDS = 20
FINALISTS = 3
"""Configurations of a shape that are measured again, precisely, at the end of a search."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSpace:
    """A space of which every configuration was measured."""

    space: SearchSpace
    times_ns: tuple[float | None, ...]
    """Median of each configuration; None where it failed or was wrong."""
    errors: tuple[float, ...]
    """Relative standard error of each median, from its interval."""

    @property
    def best_ns(self) -> float:
        return min(ns for ns in self.times_ns if ns is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedShare:
    """Quality of a strategy with a budget: the time of the exhaustive best over that of what it
    found, at most 1, as geometric mean over the shapes."""

    strategy: str
    budget: float
    """Share of the evaluations."""
    evaluations: float
    """Number of evaluations of a shape, on average."""
    mean: float
    """Mean over the seeds."""
    lowest: float
    highest: float
    """Highest of all seeds."""
    by_shape: tuple[float, ...]
    """Geometric mean over the seeds, for each shape."""


def simulate(
    measured: Sequence[MeasuredSpace],
    strategies: Sequence[str],
    budgets: Sequence[float] = BUDGETS,
    seeds: int = SEEDS,
) -> list[SimulatedShare]:
    """Simulate each strategy with each budget.

    A trial varies around the stored median as another one with its number of samples would, by
    the stored interval. Of the :data:`FINALISTS` that are then the fastest, the finals find the
    one with the shortest stored median. Where nothing that was tried worked, the share is 0.

    Raises:
        UnknownNameError, RequestError: there is no such strategy, or its library is missing.
    """
    found = []
    for name in strategies:
        for budget in budgets:
            runs = [_run(measured, name, budget, seed) for seed in range(seeds)]
            shares = [[share for share, _ in run] for run in runs]
            means = list(map(_mean, shares))
            found.append(
                SimulatedShare(
                    strategy=name,
                    budget=budget,
                    evaluations=float(np.mean([cost for run in runs for _, cost in run])),
                    mean=fmean(means),
                    lowest=min(means),
                    highest=max(means),
                    by_shape=tuple(_mean(one) for one in zip(*shares, strict=True)),
                )
            )
    return found


def _mean(values: Sequence[float]) -> float:
    return (geometric_mean(values) or 0.0) if min(values) > 0 else 0.0


def _run(
    measured: Sequence[MeasuredSpace], name: str, budget: float, seed: int
) -> list[tuple[float, float]]:
    """Share found and its cost, for each shape."""
    strategy = make_strategy(name, [one.space for one in measured], Limit(share=budget), seed)
    rng = np.random.default_rng((seed, 1))

    def measure(trials: Sequence[SearchTrial]) -> Mapping[SearchTrial, float | None]:
        return {trial: _observed(measured[trial.space], trial, rng) for trial in trials}

    history = search(strategy, measure)
    found = []
    for index, one in enumerate(measured):
        finals = [one.times_ns[best] or math.inf for best in history.ranked(index)[:FINALISTS]]
        found.append((one.best_ns / min(finals, default=math.inf), history.cost(index)))
    return found


def _observed(
    measured: MeasuredSpace, trial: SearchTrial, rng: np.random.Generator
) -> float | None:
    ns = measured.times_ns[trial.candidate]
    if ns is None:
        return None
    # The median of n samples varies with 1 / sqrt(n).
    spread = measured.errors[trial.candidate] / math.sqrt(EFFORTS[trial.effort])
    return ns * math.exp(spread * rng.standard_normal())


VERSION = 1
SEARCH_FOLDER = "search"
"""Folder of a search's experiment within that of its finals."""
_FEWEST = 20
"""Fewest configurations of a shape for a useful simulation: five per cent of them is one."""
_NORMAL_95 = 1.96
_USUAL_ERROR = 0.01
"""Relative standard error of a median where too few samples were taken for an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTime:
    """A configuration of a shape."""

    configuration: str
    median_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    """95 % interval of the median, where there is one."""
    outcome: str = str(Outcome.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpace:
    """All configurations of one provider on some shapes of one device."""

    version: int = VERSION
    provider: str
    target: str
    device: str
    command: str = ""
    """The command that measured it."""
    created: str = ""
    parameters: Mapping[str, Mapping[str, Parameter]]
    """Configuration -> its parameters."""
    operations: Mapping[str, tuple[StoredTime, ...]]

    @property
    def partial_strategy(self) -> str:
        """The strategy of the search that measured it, where that does not try all configurations;
        "" of an exhaustive one, and of an experiment that no search made."""
        words = self.command.split()
        if "tune" not in words[:2]:
            return ""
        named = [after for word, after in pairwise((*words, "")) if word == "--strategy"]
        named += [word.partition("=")[2] for word in words if word.startswith("--strategy=")]
        limits = [word for word in words if word.startswith(("--evaluations", "--time"))]
        strategy = named[-1] if named else DEFAULT_STRATEGY
        return "" if strategy == EXHAUSTIVE and not limits else strategy

    def measured(self) -> list[MeasuredSpace]:
        """The spaces to simulate a search in.

        Raises:
            RequestError: no shape has enough configurations with a time.
        """
        parsed = parse_target(self.target)
        target = Target(parsed.kind, parsed.architecture, parsed.index, self.device)
        known = [_relative_error(one) for times in self.operations.values() for one in times]
        errors = [one for one in known if one is not None]
        usual = float(np.median(errors)) if errors else _USUAL_ERROR
        found = []
        for name, times in self.operations.items():
            if sum(one.median_ns is not None for one in times) < _FEWEST:
                continue
            by_name = {one.configuration: one for one in times}
            configurations = (Configuration(n, self.parameters.get(n, {})) for n in by_name)
            space = make_space(parse_operation(name), configurations, target)
            kept = [by_name[one.name] for one in space.configurations]
            found.append(
                MeasuredSpace(
                    space,
                    tuple(one.median_ns for one in kept),
                    tuple(_relative_error(one) or usual for one in kept),
                )
            )
        if not found:
            raise RequestError(
                f"no shape of {self.provider} has {_FEWEST} configurations with a time",
                hint="Measure all of a large space: gemmetry tune --strategy exhaustive.",
            )
        return found


def _relative_error(one: StoredTime) -> float | None:
    if one.low_ns is None or one.high_ns is None or not one.median_ns:
        return None
    return (one.high_ns - one.low_ns) / (2 * _NORMAL_95 * one.median_ns)


def stored_space(results: ResultSet) -> StoredSpace:
    """The space that an experiment measured: of the provider with the most configurations.

    Raises:
        RequestError: the experiment has no record.
    """
    if not results.records:
        raise RequestError(
            f"{results.title} has no results",
            hint="Measure some: gemmetry tune --strategy exhaustive.",
        )
    pairs = dict.fromkeys((record.provider, record.configuration) for record in results.records)
    [(provider, _)] = Counter(name for name, _ in pairs).most_common(1)
    own = [record for record in results.records if record.provider == provider]
    return StoredSpace(
        provider=provider,
        target=own[0].target,
        device=device_of(results),
        command=results.command,
        created=results.created,
        parameters={record.configuration: dict(record.configuration_parameters) for record in own},
        operations={
            group[0].operation: tuple(_time(record) for record in group)
            for group in group_by_problem(own).values()
        },
    )


def device_of(results: ResultSet) -> str:
    """The product of the device of the first result; of a CPU, or where it is not known, its
    target."""
    first = results.records[0]
    devices = results.environments.get(first.environment_id, Environment()).devices
    return devices[0] if devices and parse_target(first.target).is_gpu else first.target


def median_of(record: Record) -> float | None:
    """The median in ns of a configuration that may win; None where it failed, was wrong or was not
    verified."""
    is_right = (record.outcome, record.verdict.status) == (Outcome.OK, Verification.PASSED)
    return record.measurement.median_ns if is_right and record.measurement else None


def _time(record: Record) -> StoredTime:
    name, found, median = record.configuration, record.measurement, median_of(record)
    if median is None or found is None:
        outcome = str(record.outcome) if record.outcome is not Outcome.OK else "not verified"
        return StoredTime(configuration=name, outcome=outcome)
    return StoredTime(
        configuration=name, median_ns=median, low_ns=found.ci_low_ns, high_ns=found.ci_high_ns
    )


def open_space(path: Path) -> StoredSpace:
    """The exhaustive search in a compact file, in the folder of ``gemmetry tune``, or in another
    experiment. Shapes that are not finished are left out.

    Raises:
        RequestError: no search is there. JournalDamagedError: `path` cannot be read.
    """
    from gemmetry.engine.experiment import Experiment

    if path.is_file():
        return read_compact(path)
    inner = path / SEARCH_FOLDER
    with Experiment.open(inner if inner.is_dir() else path) as stored:
        unfinished = {row.operation for row in stored.remaining()}
        results = stored.result_set()
        kept = [record for record in results.records if record.operation not in unfinished]
        if not kept and results.records:
            raise RequestError(
                f"{path} has no shape of which all configurations are measured",
                hint="Repeat the command that measures it: it continues.",
            )
        return stored_space(replace(results, records=kept))


def compact(space: StoredSpace) -> bytes:
    """The space as a small JSON file: a line for each shape, with the number of each configuration
    and its times in ns to five digits, or its outcome."""
    numbers = {name: number for number, name in enumerate(space.parameters)}

    def row(one: StoredTime) -> list[Any]:
        times: list[Any] = [one.outcome]
        if one.median_ns is not None:
            times = [_digits(ns) for ns in (one.median_ns, one.low_ns, one.high_ns)]
        return [numbers[one.configuration], *times]

    head = ("version", "provider", "target", "device", "command", "created")
    lines = [f" {json.dumps(key)}: {json.dumps(getattr(space, key))}" for key in head]
    parameters = {name: json.dumps(dict(values)) for name, values in space.parameters.items()}
    shapes = {
        name: json.dumps(list(map(row, times)), separators=(",", ":"))
        for name, times in space.operations.items()
    }
    for key, texts in (("parameters", parameters), ("operations", shapes)):
        inner = ",\n".join(f"  {json.dumps(name)}: {text}" for name, text in texts.items())
        lines.append(f' "{key}": {{\n{inner}\n }}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def read_compact(path: Path) -> StoredSpace:
    """The inverse of :func:`compact`.

    Raises:
        RequestError: the file cannot be read, is damaged, or is of another version.
    """
    hint = "Write one with `gemmetry tune --simulate EXPERIMENT -o FILE.json --format space`."
    try:
        content = parsed_json(read_whole(path, "the space", hint=hint))
        if (version := content["version"]) != VERSION:
            why = f"has version {version!r}, not {VERSION}"
            raise RequestError(f"the space {path} {why}", hint=hint)
        return _converted(content)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, NameSyntaxError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"the space {path} is damaged: {line}", hint=hint) from error


def _converted(content: Mapping[str, Any]) -> StoredSpace:
    """
    Raises:
        ValueError, TypeError, KeyError, IndexError, NameSyntaxError: it is damaged.
    """
    names = list(content["parameters"])
    operations = {
        name: [msgspec.to_builtins(_decoded(row, names)) for row in rows]
        for name, rows in content["operations"].items()
    }
    for name in operations:
        parse_operation(name)
    return msgspec.convert({**content, "operations": operations}, StoredSpace)


def _decoded(row: Sequence[Any], names: Sequence[str]) -> StoredTime:
    """
    Raises:
        ValueError, TypeError: it holds no time that a measurement gives.
    """
    if type(row[0]) is not int or not 0 <= row[0] < len(names):
        raise ValueError(f"there is no configuration {row[0]}")
    name = names[row[0]]
    if isinstance(row[1], str):
        return StoredTime(configuration=name, outcome=row[1])
    median, low, high = row[1:]
    if not (math.isfinite(median) and median > 0):
        raise ValueError(f"the time {median} of {name} is not positive")
    return StoredTime(configuration=name, median_ns=median, low_ns=low, high_ns=high)
