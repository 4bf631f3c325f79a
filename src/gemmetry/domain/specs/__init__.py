"""Converts YAML and the command line into domain objects: shapes, ranges, selections, operations,
plans.

Start at ``model.py`` (the keys), then ``planning.py`` (spec -> plan).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.domain.specs.loader import load_spec, make_spec
    from gemmetry.domain.specs.model import ProfileSpec


_EXPORTS = {
    "ProfileSpec": "gemmetry.domain.specs.model",
    "load_spec": "gemmetry.domain.specs.loader",
    "make_spec": "gemmetry.domain.specs.loader",
}

__all__ = ["ProfileSpec", "load_spec", "make_spec"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'gemmetry.domain.specs' has no attribute {name!r}")
