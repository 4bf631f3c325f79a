"""Digests of the sources that a dispatch is compiled from: a verified kernel whose source changed
is no longer verified."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import GemmetryError

ProviderOf = Callable[[str], Provider]
"""Name -> provider; raises GemmetryError for those that do not exist."""


def source_digest(provider: Provider, dispatch: Dispatch) -> str:
    """SHA-256 over the sources that `provider` generates for `dispatch`, and its versions, which
    include that of the compiler.

    Raises:
        GemmetryError: the provider cannot generate them.
    """
    found = hashlib.sha256()
    for name, data in sorted(_sources(provider, dispatch).items()):
        found.update(f"{name}\0{len(data)}\0".encode() + data)
    for name, version in sorted(provider.versions().items()):
        found.update(f"{name}={version}\0".encode())
    return found.hexdigest()


def is_unchanged(provider: Provider, dispatch: Dispatch, stored: Path) -> bool:
    """Whether the sources in `stored`, the folder where an experiment kept those of `dispatch`, are
    what the provider generates today. Files that the experiment did not keep are not compared."""
    try:
        sources = _sources(provider, dispatch)
    except GemmetryError:
        return False
    kept = {path.name: path for path in stored.glob("*") if path.is_file()}
    return all(kept[name].read_bytes() == sources[name] for name in sources.keys() & kept.keys())


def _sources(provider: Provider, dispatch: Dispatch) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="gemmetry-") as folder:
        paths = provider.generate([dispatch], Workspace(generated=Path(folder)))
        return {path.name: path.read_bytes() for path in paths}
