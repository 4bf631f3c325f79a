"""Quantiles, intervals, comparison of two samples."""
