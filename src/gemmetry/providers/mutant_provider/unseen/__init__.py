"""Planted kernels that were written without a look at the checks."""
