"""The public Python interface. Start at ``results.py``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not lazy: a later import of the module would bind this name to it instead of the function.
from gemmetry.api.profile import profile

if TYPE_CHECKING:
    from gemmetry.api.decorators import bench
    from gemmetry.api.results import Results, load
    from gemmetry.api.trace_record import record_traces
    from gemmetry.dispatcher.call import matmul

__all__ = ["Results", "bench", "load", "matmul", "profile", "record_traces"]


_MODULES = {
    "Results": "api.results",
    "bench": "api.decorators",
    "load": "api.results",
    "matmul": "dispatcher.call",
    "record_traces": "api.trace_record",
}


def __getattr__(name: str) -> Any:
    if name == "matmul":
        from gemmetry.reports.extras import require

        require("torch", extra="torch")
    if name in _MODULES:
        return getattr(importlib.import_module(f"gemmetry.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'gemmetry.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
