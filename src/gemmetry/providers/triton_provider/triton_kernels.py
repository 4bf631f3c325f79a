"""The kernels of this provider by name; importing this module imports triton."""

from __future__ import annotations

from typing import Any

from gemmetry.providers.kernels.triton_block_scaled import matmul_kernel_block_scaled
from gemmetry.providers.kernels.triton_descriptors import matmul_kernel_descriptors
from gemmetry.providers.kernels.triton_matmul import matmul_kernel

KERNELS: dict[str, Any] = {
    "matmul_kernel": matmul_kernel,
    "matmul_kernel_descriptors": matmul_kernel_descriptors,
    "matmul_kernel_block_scaled": matmul_kernel_block_scaled,
}
