"""Planted kernels on the host: a tiled GEMM in numpy, and one change of it a class."""
