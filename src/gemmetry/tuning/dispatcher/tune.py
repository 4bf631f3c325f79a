"""Makes the table of a device in a given time: searches, the best of each provider in turns with
torch, and the verifications that let them be chosen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.dispatches.profile import prepare, read_spec
from gemmetry.domain.dispatch import NamedDispatch
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.domain.record import Listener, Message
from gemmetry.domain.settings import VERIFICATION_LEVELS
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec
from gemmetry.domain.units import counted
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.engine.experiment import Experiment
from gemmetry.providers.base import traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.tuning.dispatcher.building import LEVEL, BuiltTable, build_table, wanted_proofs
from gemmetry.tuning.dispatcher.table import CUBLAS, candidate_of, parts_of
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
        usual = {"benchmark_repetitions": None, "baseline": None}
        plan = named_plan(prepared.spec, names, **{**usual, **values})
        end = began + share * prepared.seconds
        if failure := runner.run(plan, folder, lambda: time.monotonic() > end):
            raise EnvironmentFailure(failure, hint="The same command continues.")

    *_, finals, proofs = prepared.folders
    most = prepared.finalists
    wide = [one for one in prepared.searches if max(map(len, one.spaces)) > _FINALISTS]
    names = []
    for one in prepared.searches:
        left = began + prepared.seconds * _SEARCHED - time.monotonic()
        seconds = left / max(len(wide), 1)
        picks = [space.order for space in one.spaces]
        if one in wide:
            wide.remove(one)
            picks = _searched(one, seconds, listener, fresh=fresh, command=command)
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
