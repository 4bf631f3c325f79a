"""Planted kernels in CUDA C++."""
