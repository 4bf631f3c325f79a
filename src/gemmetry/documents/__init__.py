"""Files of the five documents' own scripts, with the same columns."""

from __future__ import annotations
