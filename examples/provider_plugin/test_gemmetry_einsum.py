"""The provider does what gemmetry asks of every provider: ``pytest test_gemmetry_einsum.py``."""

from __future__ import annotations

from gemmetry_einsum import EinsumProvider

from gemmetry.testing import ProviderConformance


class TestEinsum(ProviderConformance):
    provider_class = EinsumProvider
    operations = (
        "matmul_37x29x41_f32t_f32n_f32t",
        "matmul_37x29x41_f64n_f64t_f64n",
        "batch_matmul_3x17x5x19_f32n_f32t_f32n",
    )
    refused = (
        "matmul_8x8x8_bf16t_bf16t_bf16t",
        "matmul_8x8x8_f32t_f32t_f32t_relu",
        "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5",
    )
