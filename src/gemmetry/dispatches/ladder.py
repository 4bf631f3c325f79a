"""The ladder of our own kernels: planning and running it; and, from stored results, what each rung
gains over the one before, and how far it is from the vendor library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from operator import itemgetter
from os import PathLike
from pathlib import Path

from gemmetry.dispatches.analysis import (
    baseline_label,
    evidence_of,
    fastest,
    group_by_problem,
    is_of_baseline,
    rank,
)
from gemmetry.domain.dispatch import NamedDispatch, Plan, ProviderRequest, Target, parse_operation
from gemmetry.domain.errors import (
    EmptySelectionError,
    Outcome,
    RequestError,
    Stage,
    UnknownNameError,
)
from gemmetry.domain.operation import BF16, F16, Operation
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.settings import REGIMES, RunSettings
from gemmetry.engine.schema import DEFAULT_FOLDER
from gemmetry.providers.base import baseline_names, best_baseline, builtin_names
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import CudaKernel
from gemmetry.providers.cuda_provider.provider import PROVIDER
from gemmetry.providers.registry import load_provider
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.statistics.comparison import compare as judge_pairs
from gemmetry.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One rung: which records are its own, and what it adds to the one before."""

    number: int
    name: str
    adds: str
    provider: str
    key: str
    """Prefix of the names of the rung's configurations, before the first ``_``."""


@dataclass(frozen=True, slots=True)
class LadderPhase:
    """A gain that was expected before any rung was written."""

    name: str
    first: int
    """The rung from which it is counted."""
    last: int
    """The rung that it leads to."""
    expected: Interval


@dataclass(frozen=True, slots=True)
class Gain:
    """Speedup of one dispatch over another."""

    over: str
    """Name of the baseline."""
    ratio: float
    interval: Interval | None
    """All intervals of a ladder hold together with the same confidence; None: too little was
    measured."""
    verdict: Difference


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung on one problem: the fastest of its configurations that were measured, or what became
    of one if none was."""

    step: LadderStep
    record: Record
    gain: Gain | None = None
    """Over the highest rung below that was measured on the same problem."""
    of_library: Gain | None = None
    """Relative to the vendor library's fastest dispatch of the problem."""
    of_best: Gain | None = None
    """Relative to the fastest of the library's algorithms, where they were timed."""

    @property
    def tflops(self) -> float | None:
        """10¹² FLOP/s at the median."""
        return None if self.record.gflops is None else self.record.gflops / 1e3

    @property
    def tflops_interval(self) -> Interval | None:
        """The 95 % interval of the median as a speed."""
        found = self.record.measurement
        if found is None or found.ci_low_ns is None or found.ci_high_ns is None:
            return None
        return self.record.flops / found.ci_high_ns / 1e3, self.record.flops / found.ci_low_ns / 1e3


class Expectation(StrEnum):
    """Comparison of a measured gain with an expected range."""

    MORE = "more"
    AS_EXPECTED = "as expected"
    LESS = "less"
    UNDECIDED = "undecided"
    """The interval reaches over an end of the range."""


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """A phase as it was measured on one problem."""

    phase: LadderPhase
    operation: str
    gain: Gain

    @property
    def expectation(self) -> Expectation:
        """Read from the interval that is shown with it."""
        least, most = self.phase.expected
        match self.gain.interval:
            case (low, _) if low > most:
                return Expectation.MORE
            case (_, high) if high < least:
                return Expectation.LESS
            case (low, high) if least <= low and high <= most:
                return Expectation.AS_EXPECTED
        return Expectation.UNDECIDED


@dataclass(frozen=True, slots=True)
class Ladder:
    """All rungs on all problems."""

    rungs: tuple[Rung, ...]
    """Rungs by problem in the order of the results, and by number."""
    libraries: dict[str, Record]
    """Operation -> the vendor library's fastest dispatch."""
    bests: dict[str, Record]
    """Operation -> the fastest of the library's algorithms."""
    phases: tuple[PhaseResult, ...]


def build_ladder(
    result_set: ResultSet,
    steps: Sequence[LadderStep],
    phases: Sequence[LadderPhase],
    library: str,
    best_of_library: str = "",
) -> Ladder:
    """The ladder that stored results show. Rungs are only compared on a problem that both ran, and
    all comparisons are judged together.

    Args:
        library: the provider of the vendor library.
        best_of_library: ``provider:configuration`` that is the fastest of the library's algorithms.
    """
    rungs, planned = [], []
    bases: tuple[dict[str, Record], dict[str, Record]] = ({}, {})
    pairs: dict[_Pair, tuple[Record, Record, str]] = {}

    def noted(before: Record | None, after: Record, over: str = "") -> _Pair | None:
        """The key of a gain; all gains are judged together once all of them are known."""
        if before is None or not _is_measured(after):
            return None
        pairs[before.key, after.key] = (before, after, over or library_label(before))
        return before.key, after.key

    for problem, group in group_by_problem(result_set.records).items():
        best = dict(_best_of(group, steps))
        fine = {one.number: (record, one.name) for one, record in best.items()
                if _is_measured(record)}  # fmt: skip
        found = [fastest(r for r in group if is_of_baseline(r, name) and _is_measured(r))
                 for name in (library, best_of_library)]  # fmt: skip
        for of, base in zip(bases, found, strict=True):
            if base is not None and best:
                of[problem[2]] = base
        for step, record in sorted(best.items(), key=lambda item: item[0].number):
            below = max((number for number in fine if number < step.number), default=None)
            before, over = (None, "") if below is None else fine[below]
            keys = noted(before, record, over), *(noted(base, record) for base in found)
            rungs.append((step, record, keys))
        planned += [
            (number, phase, problem[2], noted(fine[phase.first][0], fine[phase.last][0],
                                              fine[phase.first][1]))
            for number, phase in enumerate(phases)
            if phase.first in fine and phase.last in fine
        ]  # fmt: skip
    judged = _judged(result_set, pairs)
    return Ladder(
        tuple(Rung(step, record, *(judged.get(key) if key else None for key in keys))
              for step, record, keys in rungs),
        *bases,
        tuple(PhaseResult(phase, operation, judged[key])
              for _, phase, operation, key in sorted(planned, key=itemgetter(0)) if key),
    )  # fmt: skip


def library_label(record: Record) -> str:
    """``torch:default``, ``cublaslt:best (best of 8)``."""
    return baseline_label([record], f"{record.provider}:{record.configuration}")


_Pair = tuple[tuple[str, str, str], tuple[str, str, str]]


def _best_of(
    group: Sequence[Record], steps: Sequence[LadderStep]
) -> Iterator[tuple[LadderStep, Record]]:
    for step in steps:
        own = [record for record in group if record.provider == step.provider
               and record.configuration.partition("_")[0] == step.key]  # fmt: skip
        if own:
            yield step, fastest(filter(_is_measured, own)) or own[0]


def _is_measured(record: Record) -> bool:
    return record.outcome is Outcome.OK and record.measurement is not None


def _judged(
    results: ResultSet, pairs: Mapping[_Pair, tuple[Record, Record, str]]
) -> dict[_Pair, Gain]:
    """The gains by their keys, judged together."""
    evidence = {
        key: one
        for key, (before, after, _) in pairs.items()
        if (one := evidence_of(results, before, results, after)) is not None
    }
    found = dict(zip(evidence, judge_pairs(list(evidence.values())), strict=True))
    return {key: _gain(*pair, found.get(key)) for key, pair in pairs.items()}


def _gain(before: Record, after: Record, over: str, comparison: Comparison | None) -> Gain:
    if comparison is None:
        return Gain(over, rank(before) / rank(after), None, Difference.UNDECIDED)
    interval = comparison.interval
    inverse = None if interval is None else (1 / interval[1], 1 / interval[0])
    return Gain(over, 1 / comparison.ratio, inverse, comparison.verdict)


SIZES = (256, 2048, 4096, 8192)
"""M = N = K by default. One thread alone takes about two minutes of an H200 at 512, to be verified
and measured, so that the slow rungs run on the smallest size only."""
FORMATS = (BF16.name, F16.name)
CONFIGURATIONS = 2
"""Default number of measured configurations of a rung, the most promising ones."""

_SMALL = 512
"""Up to this size the slow rungs run, and the first one that is not slow, so that its gain is
known."""
_SLOW = 1
"""Rungs up to this one take seconds for larger products."""
_LONGER = 5.0
"""Factor on the deadlines of verifying and measuring: one thread takes seconds for 512³."""

_WIDTH = 0.01
"""Sampling ends at ±1 %: rungs differ by more, and ±0.5 % takes three to four times as many rounds
(``benchmarks/round_spread.py``)."""

_SAMPLES = 20
"""Minimum number of samples of each dispatch, however long a launch takes. The sign test on pairs
of rounds, corrected for some fifty comparisons, needs eleven (2 / 2¹¹ < 5 % / 50)."""

PHASES = (
    LadderPhase("warps in parallel", 0, 2, (100.0, 200.0)),
    LadderPhase("tensor cores", 3, 4, (5.0, 10.0)),
    LadderPhase("asynchronous loads", 5, 6, (2.0, 3.0)),
    LadderPhase("full utilisation", 6, 8, (1.5, 2.0)),
)
"""The phases that the kernel lessons document planned with the gains that it expected, and the
rungs that take the same steps."""


def ladder_steps() -> tuple[LadderStep, ...]:
    """The rungs of the ladder, the lowest first."""
    return tuple(
        LadderStep(kernel.rung, kernel.name, kernel.adds, PROVIDER.name, kernel.key)
        for kernel in _rungs()
        if kernel.rung is not None
    )


def parse_rungs(text: str) -> list[int]:
    """``2,5-11`` -> the numbers of rungs.

    Raises:
        RequestError: a part is neither a number nor a range of them.
        UnknownNameError: there is no such rung.
    """
    known = {step.number for step in ladder_steps()}
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
        if match is None:
            raise RequestError(
                f"cannot read the rungs {text!r}: {part!r} is not a number or a range of them",
                hint="Write 2,5-11.",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1)
    if unknown := [number for number in found if number not in known]:
        raise UnknownNameError("rung", str(unknown[0]), map(str, sorted(known)))
    return found


def prepare_ladder(
    *,
    sizes: Sequence[int] = SIZES,
    dtype: str = BF16.name,
    rungs: Iterable[int] | None = None,
    configurations: int = CONFIGURATIONS,
    device: str | None = None,
    regime: str = "burst",
    experiment: str | PathLike[str] | None = None,
) -> tuple[Plan, Path]:
    """The plan of a ladder with the vendor library next to it, and the fastest of the library's
    algorithms where their provider works; and the folder of its results. Nothing runs.

    Args:
        sizes: M = N = K; up to 512 for the slow rungs 0 and 1 and the first one above, larger for
            all others.
        dtype: of A, B and C; one of :data:`FORMATS`.
        rungs: their numbers; None: all.
        configurations: how many of each rung, the most promising ones.
        device: ``cuda:1``; None: the first Hopper GPU.
        regime: thermal regime of the measurements.
        experiment: folder of the results; None: one named after the plan.

    Raises:
        UnknownNameError: no such format or regime. EmptySelectionError: no rung is left.
        RequestError: there is no Hopper GPU, or the provider does not work here.
    """
    if dtype not in FORMATS:
        raise UnknownNameError("format of the ladder", dtype, FORMATS)
    if regime not in REGIMES:
        raise UnknownNameError("regime", regime, REGIMES)
    target = _hopper(device)
    library = baseline_names(builtin_names())[0]
    best_library, _, best = best_baseline().partition(":")
    best_provider = load_provider(best_library)
    has_best = best_provider.available() is None
    wanted = None if rungs is None else frozenset(rungs)
    named: list[NamedDispatch] = []
    for size in dict.fromkeys(sizes):
        operation = parse_operation(f"matmul_{size}x{size}x{size}_{dtype}t_{dtype}n_{dtype}t")
        own = list(_named(operation, size, wanted, configurations))
        named += own
        if own:
            found = load_provider(library).configurations(operation, target)
            named += [NamedDispatch(operation=operation, configuration=one.name, provider=library)
                      for one in found]  # fmt: skip
            if has_best and best_provider.supports(operation, target) is None:
                named.append(
                    NamedDispatch(operation=operation, configuration=best, provider=best_library)
                )
    if not named:
        raise EmptySelectionError(
            "no rung runs on these sizes",
            hint=f"Rungs 0 and 1 run up to {_SMALL}, those from 3 on above.",
        )
    used = {one.provider for one in named}
    order = (library, best_library, PROVIDER.name)
    plan = _plan(named, [name for name in order if name in used], target, regime)
    return plan, Path(experiment or DEFAULT_FOLDER / f"{plan.name}-{plan.hash}")


def ladder_of(result_set: ResultSet) -> Ladder:
    """The ladder in the results of any run.

    Raises:
        RequestError: no record is of a rung.
    """
    steps = ladder_steps()
    library = baseline_names(builtin_names())[0]
    found = build_ladder(result_set, steps, PHASES, library, best_baseline())
    if not found.rungs:
        raise RequestError(
            f"{result_set.path or result_set.title} has no result of a rung of the ladder",
            hint="gemmetry kernels ladder measures them; gemmetry kernels list lists them.",
        )
    return found


def _rungs() -> list[CudaKernel]:
    found = [kernel for kernel in catalogue.kernels() if kernel.rung is not None]
    return sorted(found, key=lambda kernel: kernel.rung or 0)


def _named(
    operation: Operation, size: int, wanted: frozenset[int] | None, configurations: int
) -> Iterator[NamedDispatch]:
    for kernel in _rungs():
        number = kernel.rung or 0
        runs = number <= _SLOW + 1 if size <= _SMALL else number > _SLOW
        legal = kernel.legal(operation) if runs and (wanted is None or number in wanted) else ()
        for one in legal[:configurations]:
            yield NamedDispatch(operation=operation, configuration=one.name,
                                provider=PROVIDER.name)  # fmt: skip


def _hopper(device: str | None) -> Target:
    provider = PROVIDER()
    if reason := provider.available():
        raise RequestError(f"the ladder cannot run here: {reason}")
    here = [target for target in provider.targets() if target.index is not None]
    found = next((target for target in here if device in (None, target.device)), None)
    if found is None:
        what = f"{device} is no Hopper GPU of this machine" if device else "there is no Hopper GPU"
        raise RequestError(
            f"the ladder cannot run: {what}",
            hint="gemmetry kernels ladder FOLDER shows stored results; gemmetry kernels check "
            "compiles every rung without a GPU.",
        )
    return found


def _plan(
    named: Sequence[NamedDispatch], providers: Sequence[str], target: Target, regime: str
) -> Plan:
    defaults = RunSettings()
    longer = {
        stage: seconds * _LONGER if stage in (Stage.VERIFY, Stage.MEASURE) else seconds
        for stage, seconds in defaults.deadlines_s.items()
    }
    settings = replace(defaults, regime=regime, distribution="normal", deadlines_s=longer,
                       min_samples=_SAMPLES, interval_width=_WIDTH)  # fmt: skip
    how = asdict(settings) | {"deadlines_s": {str(stage): value for stage, value in longer.items()}}
    names = [(one.provider, str(one.operation), one.configuration) for one in named]
    return Plan(
        name="ladder",
        operations=(),
        providers=tuple(ProviderRequest(name=name) for name in dict.fromkeys(providers)),
        targets=(target,),
        named=tuple(named),
        settings=settings,
        document={"name": "ladder", "target": target.name, "dispatches": names, "settings": how},
    )
