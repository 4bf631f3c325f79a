"""How hardware counters are collected: sets, command lines of profilers, their failures.

``collector.py`` is an overview.
"""
