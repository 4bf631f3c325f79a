"""Training sweeps: what is run, what its traces show, comparisons, pages."""

from __future__ import annotations
