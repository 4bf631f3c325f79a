"""Collectives of several ranks: matching, alignment of clocks, summaries."""

from __future__ import annotations
