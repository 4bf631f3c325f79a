"""Rules by kind; see :func:`gemmetry.counters.diagnosis.model.rule`."""

from __future__ import annotations
