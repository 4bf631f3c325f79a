"""Plan -> isolated workers -> journal -> resume.

``session.py`` is an overview of a run, and ``candidates.py`` defines what it does with each
dispatch. ``device.py`` processes the dispatches of one device in workers (``process.py``).
``worker.py`` and ``bench.py`` run inside the workers, and ``protocol.py`` defines the messages
between them. ``experiment.py`` reads and writes the folder of a run.

The functions load when they are first used, so that a worker imports only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmetry.engine.session import RunSummary, compile_plan, generate, run, trace_plan


__all__ = ["RunSummary", "compile_plan", "generate", "run", "trace_plan"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("gemmetry.engine.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
