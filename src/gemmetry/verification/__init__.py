"""Verifies dispatches: checks, their inputs and references, and the reason for a failure."""

from __future__ import annotations
