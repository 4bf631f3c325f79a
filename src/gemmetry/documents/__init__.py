"""What the five documents' own scripts wrote, to the column."""

from __future__ import annotations
