"""Writes results: tables in every format, pages, progress, texts."""

from __future__ import annotations
