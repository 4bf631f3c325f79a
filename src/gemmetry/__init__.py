"""gemmetry: generate, prove, measure, explain and compare matrix multiplies.

Importing this package loads the standard library only; everything heavy is imported by the
module that needs it. Start reading at ``docs/map.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.dispatches.notebook import bench
    from gemmetry.dispatches.profile import profile, record_traces
    from gemmetry.dispatches.results import Results, load
    from gemmetry.judge.contest import Contest, compare
    from gemmetry.tuning.dispatcher.call import matmul


__version__ = "0.1.0"

__all__ = [
    "Contest",
    "Results",
    "__version__",
    "bench",
    "compare",
    "load",
    "matmul",
    "profile",
    "record_traces",
]
_MODULES = {
    "Contest": "gemmetry.judge.contest",
    "Results": "gemmetry.dispatches.results",
    "bench": "gemmetry.dispatches.notebook",
    "compare": "gemmetry.judge.contest",
    "load": "gemmetry.dispatches.results",
    "matmul": "gemmetry.tuning.dispatcher.call",
    "profile": "gemmetry.dispatches.profile",
    "record_traces": "gemmetry.dispatches.profile",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        if name == "matmul":
            from gemmetry.results.tables import require

            require("torch", extra="torch")
        # Kept, as looking it up again would take longer than choosing a kernel.
        found = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
        return found
    raise AttributeError(f"module 'gemmetry' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
