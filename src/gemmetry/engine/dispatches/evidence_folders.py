"""Stores the evidence of failed verifications: a folder for each dispatch, within limits.

``artifacts/failures/<device>/<provider>/<dispatch>/`` of the experiment holds ``arrays.npz`` and
``failure.txt``. Evidence helps to find a bug. If it cannot be kept (disk full, too large), that is
noted, and neither the verdict nor the run is affected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.names import operation_name
from gemmetry.domain.record import Record
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.units import format_bytes
from gemmetry.formats.files import remove
from gemmetry.verification.evidence import ARRAYS_NAME, Evidence, save

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
        target = dispatch.target
        relative = path_of(target.device or target.name, dispatch.provider, dispatch.name)
        folder = self._root / relative
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove(folder / ARRAYS_NAME, inside=self._root)
            (folder / TEXT_NAME).write_text(self._text(evidence, folder), encoding="utf-8")
        except OSError:
            return None
        return (FAILURES / relative).as_posix()

    def _text(self, evidence: Evidence, folder: Path) -> str:
        settings = self._settings
        return "\n".join((
            f"check         {evidence.check}",
            f"operation     {operation_name(evidence.operation)}",
            f"inputs        those of the check, from seed {settings.seed} and the distribution "
            f"{settings.distribution}",
            f"arrays        {self._save_arrays(evidence, folder)}",
            "",
        ))  # fmt: skip

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
        return f"{ARRAYS_NAME}, read with gemmetry.verification.evidence.load(folder)"


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
