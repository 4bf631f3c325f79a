"""Configurations of IREE: tiles, their names, and how they are written into IR."""
