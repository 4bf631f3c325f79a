"""References of the checks."""

from __future__ import annotations
