"""Strategies of a search, one file each."""
