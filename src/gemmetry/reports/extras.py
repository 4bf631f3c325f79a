"""Libraries that only some reports need."""

from __future__ import annotations

import importlib
from typing import Any

from gemmetry.domain.errors import RequestError


def require(module: str, *, extra: str) -> Any:
    """The module called `module`, which ``gemmetry[extra]`` installs.

    Raises:
        RequestError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise RequestError(
            f"this report needs {name}, which is not installed ({error})",
            hint=f"Install it with: pip install 'gemmetry[{extra}]'",
        ) from error
