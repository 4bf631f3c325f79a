"""The ladder of our own kernels: planning and running it, and what stored results show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.dispatches.ladder import Ladder, LadderPhase, LadderStep, build_ladder
from gemmetry.domain.dispatch import NamedDispatch, Plan, ProviderRequest, Target
from gemmetry.domain.errors import EmptySelectionError, RequestError, Stage, UnknownNameError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import BF16, F16, Operation
from gemmetry.domain.record import Listener, ignore_events
from gemmetry.domain.settings import REGIMES, RunSettings
from gemmetry.engine.store.creation import DEFAULT_FOLDER
from gemmetry.providers.base import baseline_names, best_baseline, builtin_names
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import CudaKernel
from gemmetry.providers.cuda_provider.provider import PROVIDER
from gemmetry.providers.registry import load_provider

if TYPE_CHECKING:
    from gemmetry.domain.record import ResultSet
    from gemmetry.engine import RunSummary


SIZES = (256, 2048, 4096, 8192)
"""M = N = K by default. One thread alone takes about two minutes of an H200 at 512, to be verified
and measured, so that the slow rungs run on the smallest size only."""
FORMATS = (BF16.name, F16.name)
CONFIGURATIONS = 2
"""How many configurations of a rung are measured by default, the most promising ones."""

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
"""At least so many of each dispatch, however long a launch takes: the sign test on pairs of rounds,
corrected for some fifty comparisons, needs eleven (2 / 2¹¹ < 5 % / 50)."""

PHASES = (
    LadderPhase("warps in parallel", 0, 2, (100.0, 200.0)),
    LadderPhase("tensor cores", 3, 4, (5.0, 10.0)),
    LadderPhase("asynchronous loads", 5, 6, (2.0, 3.0)),
    LadderPhase("full utilisation", 6, 8, (1.5, 2.0)),
)
"""The phases that the kernel lessons document planned with the gains that it expected, and the
rungs that take the same steps."""


@dataclass(frozen=True, slots=True)
class LadderRun:
    """A ladder that is ready to run."""

    plan: Plan
    experiment: Path


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
    for number in found:
        if number not in known:
            raise UnknownNameError("rung", str(number), map(str, sorted(known)))
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
) -> LadderRun:
    """The plan of a ladder with the vendor library next to it, and the fastest of the library's
    algorithms where their provider works; nothing runs.

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
    folder = Path(experiment) if experiment else DEFAULT_FOLDER / f"{plan.name}-{plan.hash}"
    return LadderRun(plan, folder)


def run_ladder(
    prepared: LadderRun,
    *,
    listener: Listener = ignore_events,
    fresh: bool = False,
    command: str = "",
) -> RunSummary:
    """Verify and measure the ladder, resuming from the folder's contents.

    Raises:
        EnvironmentFailure: disk full, device lost ...; earlier results are kept.
    """
    from gemmetry.engine import run

    return run(prepared.plan, prepared.experiment, listener=listener, fresh=fresh, command=command)


def ladder_of(result_set: ResultSet) -> Ladder:
    """The ladder that results show, of whichever run.

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
    is_small = size <= _SMALL
    for kernel in _rungs():
        number = kernel.rung or 0
        runs = number <= _SLOW + 1 if is_small else number > _SLOW
        if runs and (wanted is None or number in wanted):
            for one in kernel.legal(operation)[:configurations]:
                yield NamedDispatch(
                    operation=operation, configuration=one.name, provider=PROVIDER.name
                )


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
    settings = replace(
        defaults,
        regime=regime,
        distribution="normal",
        deadlines_s=longer,
        min_samples=_SAMPLES,
        interval_width=_WIDTH,
    )
    how = asdict(settings)
    how["deadlines_s"] = {str(stage): value for stage, value in settings.deadlines_s.items()}
    names = [(one.provider, str(one.operation), one.configuration) for one in named]
    return Plan(
        name="ladder",
        operations=(),
        providers=tuple(ProviderRequest(name=name) for name in dict.fromkeys(providers)),
        targets=(target,),
        named=tuple(named),
        settings=settings,
        document={
            "name": "ladder",
            "target": target.name,
            "dispatches": names,
            "settings": how,
        },
    )
