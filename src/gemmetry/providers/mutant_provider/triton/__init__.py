"""Planted kernels in Triton."""
