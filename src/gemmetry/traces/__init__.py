"""Computes tables from the rows of trace files: what ran when, which GEMM it was, and which rank
waited for which.
"""
