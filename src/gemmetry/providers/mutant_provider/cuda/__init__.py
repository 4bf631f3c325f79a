"""Mutants in CUDA C++."""
