"""Training sweeps: runs, analysis of their traces, comparisons, pages."""

from __future__ import annotations
