"""Inputs of checks: exact sums, scaled by powers of two, and values rare in random data."""
