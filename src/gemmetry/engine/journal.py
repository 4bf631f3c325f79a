"""The only place where results become durable and are then passed to the listener."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.events import DispatchFinished, Event, Listener, Message
from gemmetry.domain.record import Record, Verdict
from gemmetry.engine.commands import save_commands
from gemmetry.engine.dispatches.evidence_folders import complete_text
from gemmetry.formats.files import within
from gemmetry.store.experiment import Experiment
from gemmetry.store.rows import StoredRound


class Journal:
    """Used by the threads of all devices; listeners are called one at a time."""

    def __init__(
        self, experiment: Experiment, listener: Listener, commands: Path | None = None
    ) -> None:
        """`commands` is the folder where the commands of each dispatch are kept, if they are."""
        self.experiment = experiment
        self._commands = commands
        self._listener = listener
        self._mutex = threading.RLock()
        self.completing = threading.Lock()
        """For the device whose results are being computed. Devices that measure equally long groups
        would otherwise all compute at the same time, slow each other down, and so end their next
        groups together again; one after another they are out of step from then on."""

    def finish(self, records: Mapping[int, Record]) -> None:
        """Store records in one transaction, then publish them."""
        self.experiment.finish(records)
        for record in records.values():
            if record.verdict.evidence_path is not None:
                # The verdict, which is what matters, is stored.
                with contextlib.suppress(OSError, RequestError):
                    folder = within(self.experiment.path, record.verdict.evidence_path)
                    complete_text(folder, record)
            if self._commands is not None:
                save_commands(self._commands, record, self.experiment.path)
            self.publish(DispatchFinished(record))

    def add_rounds(self, rounds: Sequence[StoredRound], verdicts: Mapping[int, Verdict]) -> None:
        """Store rounds, and verdicts of dispatches that continue, in one transaction."""
        if rounds or verdicts:
            self.experiment.add_rounds(rounds, verdicts)

    def publish(self, event: Event) -> None:
        """Pass an event on."""
        with self._mutex:
            self._listener(event)

    def note(self, text: str) -> None:
        """Pass on a sentence about the course of the run."""
        self.publish(Message(text))

    def warn(self, text: str) -> None:
        """Pass on a sentence that the user should read."""
        self.publish(Message(text, "warning"))
