"""Intervals, comparisons and change points."""
