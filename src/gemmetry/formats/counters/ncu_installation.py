"""Finds Nsight Compute and its library that opens reports, which is also a package of PyPI."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

LIBRARY = "ncu_report"

_VERSION = re.compile(r"\b20\d\d\.\d+(?:\.\d+)*")
_OPT = Path("/opt/nvidia/nsight-compute")
_SCRIPT_BYTES = 64 << 10


def report_library() -> ModuleType | None:
    """The module ``ncu_report``: the package, else that of an installation of Nsight Compute; None
    if there is none."""
    for folder in (None, *map(str, python_folders())):
        if folder is not None:
            sys.path.insert(0, folder)
        try:
            return importlib.import_module(LIBRARY)
        except ImportError:  # Also one whose binary is for another processor or Python.
            sys.modules.pop(LIBRARY, None)
        finally:
            if folder is not None:
                sys.path.remove(folder)
    return None


def ncu_executable() -> Path | None:
    """``ncu`` as a shell finds it, else that of an installation; None if there is none."""
    found = shutil.which("ncu")
    if found is not None:
        return Path(found)
    return next((one for root in installations() if (one := root / "ncu").is_file()), None)


def python_folders() -> list[Path]:
    """The folders of installations that contain the library."""
    folders = (root / "extras" / "python" for root in installations())
    return [one for one in folders if (one / f"{LIBRARY}.py").is_file() or (one / LIBRARY).is_dir()]


def installations(opt: Path = _OPT) -> list[Path]:
    """Folders of Nsight Compute, the one that ``ncu`` starts first, then the newest.

    Args:
        opt: where packages of distributions install it, one folder for each version.
    """
    found = shutil.which("ncu")
    started = Path(found).resolve() if found is not None else None
    near = list(started.parents[:4]) if started is not None else []
    version = _version_in_script(started) if started is not None else ""
    # CUDA's toolkit has it next to `bin`, which contains a script that starts it.
    several = [one for folder in (*near[:3], opt.parent) for one in folder.glob("nsight-compute*")]
    several += opt.glob("*")
    newest = sorted(several, key=lambda one: _key(one.name), reverse=True)
    named = [one for one in newest if version and version in one.name]
    return list(_existing([*near, *named, *newest]))


def _existing(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in dict.fromkeys(folders):
        if (folder / "extras").is_dir() or (folder / "target").is_dir():
            yield folder


def _version_in_script(path: Path) -> str:
    """The version that CUDA's script ``ncu`` starts; "" if it is no script."""
    try:
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    found = _VERSION.search(text.decode("utf-8", "replace")) if text.startswith(b"#!") else None
    return found[0] if found else ""


def _key(name: str) -> list[int]:
    found = _VERSION.search(name)
    return [int(part) for part in found[0].split(".")] if found else []
