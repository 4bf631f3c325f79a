"""Hardware counters: which metrics exist, how they are collected, and what bounds a kernel."""

from __future__ import annotations
