"""The provider ``iree``. Start at ``provider.py``; ``compiling/linalg.py`` writes what is compiled.

``tiling/`` holds the forms of configurations, ``compiling/`` compiles, and ``device.py`` and
``executable.py`` run.
"""

from gemmetry.providers.iree_provider.provider import IreeProvider as PROVIDER  # noqa: N814

__all__ = ["PROVIDER"]
