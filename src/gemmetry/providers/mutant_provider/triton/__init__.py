"""Mutants in Triton."""
