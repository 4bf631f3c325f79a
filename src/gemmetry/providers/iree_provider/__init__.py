"""The provider ``iree``. Start at ``provider.py``; ``linalg.py`` writes what is compiled.

``tiles.py`` tells the forms of configurations, ``cpu.py``, ``gpu.py`` and ``legacy.py`` hold
them, ``batches.py`` and ``compiler.py`` compile, ``device.py`` and ``executable.py`` run.
"""

from gemmetry.providers.iree_provider.provider import IreeProvider as PROVIDER  # noqa: N814

__all__ = ["PROVIDER"]
