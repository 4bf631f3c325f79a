"""Runs a search and its finals."""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.api.tuning.measuring import EngineMeasure
from gemmetry.api.tuning.planning import PreparedTuning
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.domain.events import Listener, Message, ignore_events
from gemmetry.domain.units import counted
from gemmetry.tuning.results import TuningResult, judge, with_search
from gemmetry.tuning.search import search
from gemmetry.tuning.stored import device_of
from gemmetry.tuning.strategy import make_strategy


@dataclass(frozen=True, slots=True)
class TuningRun:
    """What a search found, and whether the machine failed meanwhile."""

    result: TuningResult
    had_finalists: bool
    failure: str = ""

    @property
    def exit_status(self) -> int:
        """0: every shape has a winner, or a configuration that works where there were no finalists.
        1: one has none. 3: the machine failed."""
        if self.failure:
            return EnvironmentFailure.exit_status
        shapes = self.result.shapes
        works = (one.winner if self.had_finalists else one.tried > one.failed for one in shapes)
        return 0 if all(works) else 1


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
        KeyboardInterrupt: likewise.
    """
    from gemmetry.store.experiment import Experiment

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
        finalists = counted(sum(map(len, chosen)), "finalist")
        listener(Message(f"proofs: {finalists} at level standard"))
        chosen = measure.proven(chosen)
        had_finalists = not measure.failure
    count = sum(map(len, chosen))
    judged, device = {}, ""
    has_finals = bool(count) and not measure.failure
    if has_finals:
        listener(Message(f"finals: {counted(count, 'configuration')} next to the baselines"))
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
