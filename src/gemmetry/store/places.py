"""Locates experiments, and suggests some for a path that holds none."""

from __future__ import annotations

import re
from pathlib import Path

from gemmetry.domain.errors import RequestError, did_you_mean, nearest
from gemmetry.store.schema import JOURNAL_NAME

DEFAULT_FOLDER = Path("gemmetry-out")
"""Default folder of experiments, in the working directory."""

_MOST_NAMED = 3

_LIKELY = 0.7
"""Least similarity at which folder names elsewhere are suggested; many begin with ``profile-``,
which alone results in 0.5 for random endings."""


def missing_experiment(path: Path) -> RequestError:
    """The error for a `path` that holds no experiment, with suggestions."""
    if path.is_dir():
        cause = f"it has no {JOURNAL_NAME}"
    else:
        cause = "it is a file" if path.exists() else "there is no such folder"
    meant = _meant(path)
    usual = "Give the folder that a profile run printed as its experiment."
    hint = did_you_mean([str(folder) for folder in meant]) or usual
    return RequestError(f"no experiment in {path}: {cause}", hint=hint)


def _meant(path: Path) -> list[Path]:
    """The same path below the folder of all experiments, else the experiments inside the folder at
    `path`, else experiments with similar names next to it or in the folder of all experiments."""
    below = DEFAULT_FOLDER / path
    if not path.is_absolute() and _is_experiment(below):
        return [below]
    if path.is_dir():
        return _experiments(path)[:_MOST_NAMED]
    known = {
        one.name: one for folder in (DEFAULT_FOLDER, path.parent) for one in _experiments(folder)
    }
    alike = nearest(path.name, known, cutoff=_LIKELY)
    same_plan = [name for name in known if re.fullmatch(rf"{re.escape(path.name)}-[0-9a-f]+", name)]
    return [known[name] for name in dict.fromkeys((*same_plan, *alike))][:_MOST_NAMED]


def _experiments(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if _is_experiment(one))
    except OSError:
        return []


def _is_experiment(path: Path) -> bool:
    return (path / JOURNAL_NAME).is_file()
