"""How reports of hardware counters are decoded."""

from __future__ import annotations
