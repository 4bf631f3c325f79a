"""Strategies of the search, one module each."""

from __future__ import annotations
