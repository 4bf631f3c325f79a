"""Analysis of experiment records: fastest dispatches, comparisons, marks, their reports."""

from __future__ import annotations
