"""Decoders of reports of hardware counters."""

from __future__ import annotations
