"""Converts YAML and the command line into domain objects: shapes, ranges, selections, operations,
plans.

Start at ``model.py`` (the keys), then ``planning.py`` (spec -> plan).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.specs.loader import load_spec, make_spec
    from gemmetry.specs.model import ProfileSpec

_EXPORTS = {
    "ProfileSpec": "gemmetry.specs.model",
    "load_spec": "gemmetry.specs.loader",
    "make_spec": "gemmetry.specs.loader",
}

__all__ = ["ProfileSpec", "load_spec", "make_spec"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'gemmetry.specs' has no attribute {name!r}")
