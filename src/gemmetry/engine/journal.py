"""Stores the evidence of failed verifications: a folder for each dispatch, within limits.

``artifacts/failures/<device>/<provider>/<dispatch>/`` of the experiment holds ``arrays.npz`` and
``failure.txt``. Evidence helps to find a bug. Evidence that cannot be kept (disk full, too large)
is noted and affects neither the verdict nor the run.

``--save-cmds``: writes the commands of each dispatch to a file, with their output next to it.

The only place where results become durable and are then passed to the listener.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import remove, within
from gemmetry.domain.operation import operation_name
from gemmetry.domain.record import DispatchFinished, Event, Listener, Message, Record, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.units import format_bytes
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import StoredRound
from gemmetry.verification.comparison import ARRAYS_NAME, Evidence, save

FAILURES = Path("artifacts") / "failures"
"""Relative to an experiment's folder."""

TEXT_NAME = "failure.txt"

MAX_DISPATCH_BYTES = 256 << 20
"""Arrays of one dispatch above this size are not kept: a product of 4096³ in f32 takes 352 MB, and
can be recreated from the seed."""

MAX_TOTAL_BYTES = 2 << 30
"""The limit for all evidence of one experiment, so that a sweep in which everything is wrong does
not fill the disk."""

_MAX_NAME = 200
"""The longest name of a folder or, without its suffix, a file; file systems allow 255 bytes."""


class EvidenceFolders:
    """Keeps the evidence of one worker's dispatches.

    Args:
        root: the experiment's folder for it, absolute; created when it is first needed.
    """

    def __init__(self, root: Path, settings: RunSettings) -> None:
        self._root = root
        self._settings = settings

    def keeper(self, dispatch: Dispatch) -> Callable[[Evidence], str | None]:
        """A function that keeps the first evidence of `dispatch` passed to it, and returns the
        folder's path relative to the experiment; None if nothing could be written."""
        kept: list[str | None] = []

        def keep(evidence: Evidence) -> str | None:
            if not kept:
                kept.append(self._keep(dispatch, evidence))
            return kept[0]

        return keep

    def _keep(self, dispatch: Dispatch, evidence: Evidence) -> str | None:
        target, settings = dispatch.target, self._settings
        relative = path_of(target.device or target.name, dispatch.provider, dispatch.name)
        folder = self._root / relative
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove(folder / ARRAYS_NAME, inside=self._root)
            text = (
                f"check         {evidence.check}\n"
                f"operation     {operation_name(evidence.operation)}\n"
                f"inputs        those of the check, from seed {settings.seed} and the distribution "
                f"{settings.distribution}\n"
                f"arrays        {self._save_arrays(evidence, folder)}\n"
            )
            (folder / TEXT_NAME).write_text(text, encoding="utf-8")
        except OSError:
            return None
        return (FAILURES / relative).as_posix()

    def _save_arrays(self, evidence: Evidence, folder: Path) -> str:
        """Save the arrays if the limits and the disk allow. Returns a description of the result for
        a person."""
        size = evidence.nbytes
        again = "the command below creates them again"
        if size > MAX_DISPATCH_BYTES:
            limit = format_bytes(MAX_DISPATCH_BYTES)
            return f"not kept: {format_bytes(size)} are more than {limit}; {again}"
        held = sum(path.stat().st_size for path in self._root.rglob(ARRAYS_NAME))
        if held + size > MAX_TOTAL_BYTES:
            limit = format_bytes(MAX_TOTAL_BYTES)
            return f"not kept: the experiment's failures would take more than {limit}; {again}"
        try:
            save(folder, evidence)
        except OSError as error:
            return f"not kept: {error.strerror or error}; {again}"
        return f"{ARRAYS_NAME}, read with gemmetry.verification.comparison.load(folder)"


def path_of(place: str, provider: str, name: str) -> Path:
    """The path for what is kept of the dispatch `name` on `place`, a device or a target."""
    if len(name) > _MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        name = f"{name[:_MAX_NAME]}-{digest}"
    return Path(place.replace(":", "-")) / provider / name


def complete_text(folder: Path, record: Record) -> None:
    """Add what is known only at the end of a dispatch to the text in its `folder`: the reason, the
    error map and the command that repeats it.

    Raises:
        OSError: the file cannot be written.
    """
    parts = [f"dispatch      {record.provider}:{record.dispatch}", f"reason        {record.reason}"]
    if record.verdict.error_map:
        parts += ["", *record.verdict.error_map]
    parts += ["", f"again         {record.reproduce}", ""]
    path = folder / TEXT_NAME
    head = path.read_text(encoding="utf-8").partition("\ndispatch ")[0].rstrip("\n")
    path.write_text("\n".join((head, *parts)), encoding="utf-8")


def save_commands(folder: Path, record: Record, experiment: Path) -> Path:
    """Write ``<folder>/<target>/<provider>/<dispatch>.txt``. Returns its path.

    If the provider ran tools such as a compiler or assembler, what they printed about the dispatch
    (standard output and error together) is copied next to it as ``<dispatch>.stdout``.

    Args:
        folder: the folder of the commands of all dispatches.
        record: the record of the dispatch.
        experiment: the folder to which the record's paths are relative.

    Raises:
        OSError: the files cannot be written.
    """
    place = path_of(record.device or record.target, record.provider, record.dispatch)
    path = folder / place.with_name(f"{place.name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        ("again with gemmetry", record.reproduce),
        ("compile", record.facts.compile_command),
        ("run", record.facts.run_command),
    ]
    lines = [f"# {title}\n{command}\n" for title, command in parts if command]
    lines.append(f"# outcome: {record.outcome}\n")
    if printed := "\n".join(text for text in (record.reason, record.output_tail) if text):
        lines.append(f"# output\n{printed}\n")
    source = experiment / (record.facts.tool_output_path or "")
    if source.is_file():
        kept = path.with_suffix(".stdout")
        shutil.copyfile(source, kept)
        lines.append(f"# what the tools printed: {kept.name}\n")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@dataclass(eq=False)
class Journal:
    """Used by the threads of all devices; listeners are called one at a time. `commands` is the
    folder where the commands of each dispatch are kept, if they are."""

    experiment: Experiment
    listener: Listener
    commands: Path | None = None

    def __post_init__(self) -> None:
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
            if self.commands is not None:
                save_commands(self.commands, record, self.experiment.path)
            self.publish(DispatchFinished(record))

    def add_rounds(self, rounds: Sequence[StoredRound], verdicts: Mapping[int, Verdict]) -> None:
        """Store rounds, and verdicts of dispatches that continue, in one transaction."""
        if rounds or verdicts:
            self.experiment.add_rounds(rounds, verdicts)

    def publish(self, event: Event) -> None:
        """Pass an event on."""
        with self._mutex:
            self.listener(event)

    def warn(self, text: str) -> None:
        """Pass on a sentence that the user should read."""
        self.publish(Message(text, "warning"))
