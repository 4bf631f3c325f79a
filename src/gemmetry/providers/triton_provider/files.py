"""The sources of the kernels as files."""

from __future__ import annotations

from importlib.resources import files


def kernel_source(module: str = "triton_matmul") -> bytes:
    """The source of one of gemmetry's kernels, read as a file: importing it would import triton."""
    return files("gemmetry.kernels").joinpath(f"{module}.py").read_bytes()
