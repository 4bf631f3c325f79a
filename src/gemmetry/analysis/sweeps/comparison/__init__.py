"""Comparison of sweeps: point by point, GEMM by GEMM, collective by collective."""
