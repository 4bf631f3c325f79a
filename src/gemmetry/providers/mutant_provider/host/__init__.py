"""Mutants on the host: a tiled GEMM in numpy, and classes that each change one part of it."""
