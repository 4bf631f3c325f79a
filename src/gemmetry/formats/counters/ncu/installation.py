"""Finds NVIDIA's library that opens reports of Nsight Compute: a package of PyPI, and a part of
Nsight Compute."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

LIBRARY = "ncu_report"

_VERSION = re.compile(r"\b20\d\d\.\d+(?:\.\d+)*")
_OPT = Path("/opt/nvidia/nsight-compute")
"""Where Nsight Compute's own packages install it, a folder for each version."""

_SCRIPT_BYTES = 64 << 10


def report_library(executable: Path | None, opt: Path = _OPT) -> ModuleType | None:
    """The module ``ncu_report``: the package, else that of an installation of Nsight Compute; None
    if there is none.

    Args:
        executable: ``ncu``, where it was found.
    """
    for folder in chain([None], map(str, python_folders(executable, opt))):
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


def python_folders(executable: Path | None, opt: Path = _OPT) -> Iterator[Path]:
    """The folders of installations that contain the library: first that of the installation that
    `executable` starts, then the newest."""
    for root in _installations(executable, opt):
        folder = root / "extras" / "python"
        if (folder / f"{LIBRARY}.py").is_file() or (folder / LIBRARY).is_dir():
            yield folder


def _installations(executable: Path | None, opt: Path) -> Iterator[Path]:
    places, version = [opt.glob("*")], ""
    if executable is not None:
        real = executable.resolve()
        yield from real.parents[:4]
        # CUDA's toolkit has it next to `bin`, which contains a script that starts it.
        places += [folder.glob("nsight-compute*") for folder in real.parents[:3]]
        version = _version_in_script(real)
    newest = sorted((one for place in places for one in place), key=_key, reverse=True)
    yield from (one for one in newest if version and version in one.name)
    yield from newest


def _version_in_script(path: Path) -> str:
    """The version that CUDA's script ``ncu`` starts; "" if it is no script."""
    try:
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    found = _VERSION.search(text.decode("utf-8", "replace")) if text.startswith(b"#!") else None
    return found[0] if found else ""


def _key(folder: Path) -> list[int]:
    found = _VERSION.search(folder.name)
    return [int(part) for part in found[0].split(".")] if found else []
