"""TraceLens' sheets."""

from __future__ import annotations
