"""Libraries that only some reports need."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from gemmetry.domain.errors import RequestError

PICTURES = (".png", ".svg")
"""Suffixes of pictures, which matplotlib draws."""


def require(module: str, *, extra: str) -> Any:
    """The module called `module`, which ``gemmetry[extra]`` installs.

    Raises:
        RequestError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra, f" ({error})") from error


def is_installed(module: str) -> bool:
    """Whether `module` is installed, without the cost of importing it."""
    return importlib.util.find_spec(module) is not None


def check_installed(module: str, *, extra: str) -> None:
    """Check that `module` is installed, without the cost of importing it.

    Raises:
        RequestError: it is not installed.
    """
    if not is_installed(module):
        raise _missing(module, extra)


def check_plots(suffix: str) -> None:
    """Check that the library that draws the plots of a page or picture is installed.

    Raises:
        RequestError: it is not installed.
    """
    if suffix in (".html", ".htm"):
        check_installed("plotly", extra="plot")
    elif suffix in PICTURES:
        check_installed("matplotlib", extra="plot")


def _missing(module: str, extra: str, why: str = "") -> RequestError:
    return RequestError(
        f"this report needs {module.partition('.')[0]}, which is not installed{why}",
        hint=f"Install it with: pip install 'gemmetry[{extra}]'",
    )
