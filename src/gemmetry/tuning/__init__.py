"""Searches for fast configurations, and the dispatcher that uses what they found."""

from __future__ import annotations
