"""Inputs of the checks."""

from __future__ import annotations
