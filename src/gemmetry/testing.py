"""For tests and benchmarks of others: ``do_bench`` for any function, and the conformance suite for
providers. Each loads when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.conformance import EVERY_KIND, ProviderConformance
    from gemmetry.judge.clocks import do_bench
    from gemmetry.judge.contest import UndecidedWarning

__all__ = ["EVERY_KIND", "ProviderConformance", "UndecidedWarning", "do_bench"]
_MODULES = {
    "EVERY_KIND": "gemmetry.conformance",
    "ProviderConformance": "gemmetry.conformance",
    "UndecidedWarning": "gemmetry.judge.contest",
    "do_bench": "gemmetry.judge.clocks",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'gemmetry.testing' has no attribute {name!r}")
