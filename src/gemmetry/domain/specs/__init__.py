"""Converts YAML and the command line into domain objects: shapes, ranges, selections, operations,
plans.

Start at ``model.py`` (the keys), then ``planning.py`` (spec -> plan).
"""

from __future__ import annotations
