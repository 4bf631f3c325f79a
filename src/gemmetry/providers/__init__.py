"""Providers turn dispatches into executables; each has its own file or folder.

A provider ``foo`` is the module or package ``foo_provider`` here with a
class bound to ``PROVIDER``, or an entry point ``foo`` in the group ``gemmetry.providers``.
Start at ``base.py``; ``registry.py`` finds them.
"""

from __future__ import annotations
