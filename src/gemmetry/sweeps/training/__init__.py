"""A request for a sweep: points, settings, command lines, checks, the run."""

from __future__ import annotations
