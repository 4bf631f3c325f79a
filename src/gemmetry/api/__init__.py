"""L5: the public Python surface. Start at ``results.py``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.api.decorators import bench
    from gemmetry.api.profile import profile
    from gemmetry.api.results import Results, load

_EXPORTS = {
    "Results": "gemmetry.api.results",
    "bench": "gemmetry.api.decorators",
    "load": "gemmetry.api.results",
    "profile": "gemmetry.api.profile",
}

__all__ = ["Results", "bench", "load", "profile"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
        # Importing gemmetry.api.profile sets this package's attribute `profile` to the module;
        # the function is what the name promises.
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gemmetry.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
