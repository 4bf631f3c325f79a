"""Strategies of the search, one module each."""
