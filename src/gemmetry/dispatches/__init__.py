"""What the records of experiments show: fastest dispatches, comparisons, marks, their reports."""

from __future__ import annotations
