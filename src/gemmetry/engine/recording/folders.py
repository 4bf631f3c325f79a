"""Folders of traces during a run: which dispatch gets which, and the manifest that lists them."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.domain.events import DispatchFinished, Event, Listener
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.jobs import Outputs
from gemmetry.store.experiment import Experiment
from gemmetry.store.trace_manifest import Key, TraceManifest


class TraceFolders(Outputs):
    """Used only by the thread that writes the journal; see :mod:`gemmetry.store.trace_manifest`."""

    def __init__(
        self, store: Experiment, schedule: TraceSchedule, *, kept_of: str | None = None
    ) -> None:
        """Number the plan's dispatches and write the manifest.

        Args:
            kept_of: repeats that were recorded in the environment with this id are kept if only
                further ones are needed; None: none are kept.

        Raises:
            StorageError, JournalDamagedError: the manifest cannot be read or written.
        """
        self._store = store
        self._manifest = TraceManifest(store.path)
        self._manifest.begin(self._keys(), store.records(), schedule, kept_of=kept_of)

    def assign(self, candidate: Candidate) -> None:
        """Assign a folder to a candidate, and the number of repeats to keep."""
        target = candidate.lane.target
        key = (target.device or target.name, candidate.lane.provider, candidate.name)
        candidate.trace_folder = str(self._store.path.resolve() / self._manifest.folder(key))
        candidate.trace_kept = self._manifest.kept(key)

    def noting(self, listener: Listener) -> Listener:
        """`listener`, preceded by updates of the manifest for its events."""

        def listen(event: Event) -> None:
            if isinstance(event, DispatchFinished):
                self._manifest.add(event.record)
            listener(event)

        return listen

    def close(self) -> None:
        """Write the manifest one last time."""
        self._manifest.add_environments(self._store.environments())
        self._manifest.write()

    def _keys(self) -> Iterator[Key]:
        targets = {lane.id: lane.target for lane in self._store.lanes()}
        providers = {lane.id: lane.provider for lane in self._store.lanes()}
        for row in self._store.planned():
            target = targets[row.lane]
            yield target.device or target.name, providers[row.lane], row.name
