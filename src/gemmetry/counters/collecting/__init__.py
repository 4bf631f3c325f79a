"""How hardware counters are collected: sets, command lines of profilers, their failures.

``collector.py`` is an overview.
"""

from __future__ import annotations
