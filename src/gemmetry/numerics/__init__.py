"""Seeded inputs, references, error bounds, number formats."""

from __future__ import annotations
