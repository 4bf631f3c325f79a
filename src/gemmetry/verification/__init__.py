"""Proves an executable right."""
