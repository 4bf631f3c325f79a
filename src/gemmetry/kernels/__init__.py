"""The kernels that this project writes itself, as source.

``triton_matmul`` (Triton) is imported only by who launches or compiles it, because importing it
imports triton; nothing is imported here. ``stress.cu`` and ``mutants/`` are CUDA C++, which is
compiled at run time.
"""
