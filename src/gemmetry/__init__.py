"""gemmetry: generate, prove, measure, explain and compare matrix multiplies.

Importing this package loads the standard library only; everything heavy is imported by the
module that needs it. Start reading at ``docs/map.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.api.decorators import bench
    from gemmetry.api.profile import profile
    from gemmetry.api.results import Results, load
    from gemmetry.api.trace_record import record_traces
    from gemmetry.dispatcher.call import matmul

__version__ = "0.1.0"

__all__ = ["Results", "__version__", "bench", "load", "matmul", "profile", "record_traces"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Kept, as looking it up again would take longer than choosing a kernel.
        found = globals()[name] = getattr(importlib.import_module("gemmetry.api"), name)
        return found
    raise AttributeError(f"module 'gemmetry' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
