"""GEMM kernels of a trace, joined with the shapes that their operators or names give them."""
