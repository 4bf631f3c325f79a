"""Readers of other tools' files into neutral rows. ``events.py`` defines the rows; each file format
has one reader.
"""

from __future__ import annotations
