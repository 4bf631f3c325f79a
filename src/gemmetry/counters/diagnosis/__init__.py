"""What bounds a kernel, according to its hardware counters: ordered gates, one rule per file."""

from __future__ import annotations
