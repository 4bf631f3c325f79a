"""Intervals, comparisons and change points."""

from __future__ import annotations
