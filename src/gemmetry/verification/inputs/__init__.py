"""Inputs of checks: exact sums, scaling by powers of two, and values that are rare in random
data."""
