"""Measures the trials of a search with the engine, in experiments that grow and resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from gemmetry.api.tuning.planning import PreparedTuning
from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import RequestError
from gemmetry.domain.events import DispatchFinished, Event, Listener, Message
from gemmetry.domain.names import operation_name
from gemmetry.domain.outcome import Verification
from gemmetry.domain.record import Record
from gemmetry.domain.units import counted, format_ns
from gemmetry.tuning.space import SearchSpace
from gemmetry.tuning.stored import median_of
from gemmetry.tuning.strategy import SearchTrial

Clock = Callable[[], float]
"""The time in s."""


class _TimeUp(BaseException):
    """Ends a run like an interrupt: what is measured is stored, and no ``except Exception`` on the
    way holds it up."""


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
        self._prepared = prepared
        self._listener = listener
        self._command = command
        self._fresh: set[int] | None = set() if fresh else None
        """Efforts whose experiments have been begun anew."""
        limit = prepared.seconds
        self._clock = clock
        self._deadline = None if limit is None else clock() + limit
        self._done = self._measured = self._seconds = 0.0
        """Evaluations that are done, those of them that were measured by this process, and the
        time that these took."""
        self.failure = ""
        """Why the last run ended early."""

    def __call__(self, trials: Sequence[SearchTrial]) -> Mapping[SearchTrial, float | None]:
        """The medians of `trials` in ns; without those for which there was no time."""
        found: dict[SearchTrial, float | None] = {}
        for effort, some in groupby(sorted(trials, key=lambda one: one.effort), _effort):
            group = list(some)
            known = self._stored(effort)
            missing = [one for one in group if self._key(one) not in known]
            self._done += sum(one.cost for one in group if self._key(one) in known)
            if missing and not self.failure and not self._is_late:
                self._listener(Message(self._progress()))
                began = self._clock()
                self._run(effort, missing)
                known = self._stored(effort)
                cost = sum(one.cost for one in missing if self._key(one) in known)
                self._seconds += self._clock() - began
                self._measured += cost
                self._done += cost
            for one in group:
                record = known.get(self._key(one))
                if record is not None:
                    found[one] = median_of(record)
        return found

    def _progress(self) -> str:
        """How far the whole search is, which measures batch by batch."""
        total = sum(self._prepared.limit.of(space) for space in self._prepared.spaces)
        text = f"search: {self._done:.4g} of {counted(total, 'evaluation')}"
        if not self._measured:
            return text
        left = self._seconds / self._measured * (total - self._done)
        if self._deadline is not None:
            left = min(left, self._deadline - self._clock())
        return f"{text}, about {format_ns(1e9 * max(left, 0.0))} left"

    def finals(self, chosen: Sequence[Sequence[int]]) -> None:
        """Measure the finalists of each space next to the baselines, however late it is."""
        self._deadline = None
        self._run_plan(
            self._prepared.finals_plan(chosen),
            self._prepared.experiment,
            fresh=self._fresh is not None,
        )

    def proven(self, chosen: Sequence[Sequence[int]]) -> list[list[int]]:
        """The finalists that pass a verification at level standard."""
        from gemmetry.store.experiment import Experiment

        prepared = self._prepared
        plan = prepared.proofs_plan(chosen)
        self._run_plan(plan, prepared.proofs_folder, fresh=self._fresh is not None)
        with Experiment.open(prepared.proofs_folder) as stored:
            passed = {
                (record.operation, record.configuration)
                for record in stored.records()
                if record.verdict.status is Verification.PASSED
            }

        def is_proven(space: SearchSpace, candidate: int) -> bool:
            proofs = prepared.proofs(space, candidate)
            return all((operation_name(p.operation), p.configuration) in passed for p in proofs)

        pairs = zip(prepared.spaces, chosen, strict=True)
        return [[one for one in picks if is_proven(space, one)] for space, picks in pairs]

    def _run(self, effort: int, trials: Sequence[SearchTrial]) -> None:
        prepared = self._prepared
        names = [prepared.dispatch(prepared.spaces[one.space], one.candidate) for one in trials]
        fresh = self._fresh is not None and effort not in self._fresh
        if self._fresh is not None:
            self._fresh.add(effort)
        plan = prepared.search_plan(effort, names)
        self._run_plan(plan, prepared.search_folder(effort), fresh=fresh)

    def _run_plan(self, plan: Plan, folder: Path, *, fresh: bool) -> None:
        from gemmetry.engine import run

        with self._ending_in_time() as listener:
            summary = run(plan, folder, listener=listener, fresh=fresh, command=self._command)
            self.failure = summary.failure

    @contextmanager
    def _ending_in_time(self) -> Iterator[Listener]:
        def listen(event: Event) -> None:
            self._listener(event)
            if isinstance(event, DispatchFinished) and self._is_late:
                raise _TimeUp

        try:
            yield listen
        except _TimeUp:
            pass

    @property
    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock() > self._deadline

    def _key(self, trial: SearchTrial) -> tuple[str, str]:
        space = self._prepared.spaces[trial.space]
        return operation_name(space.operation), space.configurations[trial.candidate].name

    def _stored(self, effort: int) -> dict[tuple[str, str], Record]:
        from gemmetry.store.experiment import Experiment

        if self._fresh is not None and effort not in self._fresh:
            return {}
        try:
            stored = Experiment.open(self._prepared.search_folder(effort))
        except RequestError:
            return {}
        with stored:
            return {
                (record.operation, record.configuration): record
                for record in stored.records()
                if record.provider == self._prepared.provider
            }


def _effort(trial: SearchTrial) -> int:
    return trial.effort
