"""Planted kernels of ``rare.py``: each kind in two or three variants."""

from __future__ import annotations

from gemmetry.providers.mutant_provider.catalogue import Carrier, Mutant

_F32 = "matmul_128x64x64_f32t_f32t_f32t"
_BF16 = "matmul_64x128x64_bf16t_bf16n_bf16t"
_ROW_SCALES = "matmul_64x64x128_e4m3t_e4m3n_bf16t_scalerow"
_TENSOR_SCALES = "matmul_64x64x128_e4m3t_e4m3n_f32t_scaletensor"


def _bug(
    number: int, slug: str, bug: str, operation: str, killed_by: str, level: str = "standard"
) -> Mutant:
    return Mutant(number, slug, bug, Carrier.HOST, operation, killed_by=(killed_by,), level=level)


PLANTED: tuple[Mutant, ...] = (
    _bug(72, "factors_in_bf16", "rounds scale factors to bf16", _TENSOR_SCALES, "scale_factors"),
    _bug(72, "small_factors_clamped", "takes factors of B below 2^-12 for that", _TENSOR_SCALES,
         "scale_factors"),
    _bug(72, "rows_scaled_in_f16", "keeps sums times the row's factor in f16", _ROW_SCALES,
         "scale_factors"),
    _bug(73, "first_tiles_stored_before", "stores the first tiles in f16 before it adds C",
         "matmul_128x64x64_f16t_f16n_f16t_alpham2_beta0p3333", "addend_cancels"),
    _bug(73, "last_tiles_stored_before", "does so in bf16, in the last tiles alone",
         "matmul_64x128x64_bf16t_bf16n_bf16t_beta1_relu", "addend_cancels"),
    _bug(74, "close_by_norm", "gives the last result where inputs changed by 1e-5 of their norm",
         _F32, "many_calls"),
    _bug(74, "close_by_half", "does so where f32 inputs are the same in bf16", _F32,
         "many_calls"),
    _bug(74, "close_but_for_last_bits", "does so where all but their last two bits are the same",
         _BF16, "many_calls"),
    _bug(75, "weights_after_some_calls", "packs B for good at the 49th launch", _F32,
         "many_calls"),
    _bug(75, "ring_of_operands", "has a ring of 80 copies of A, each filled once", _BF16,
         "many_calls"),
    _bug(75, "launch_lost_at_wrap", "does nothing at every 64th launch", _F32, "many_calls"),
    _bug(76, "workspace_of_thread", "has its workspace in the thread that built it", _F32,
         "other_thread"),
    _bug(76, "mode_of_thread", "sets the arithmetic of the thread that built it", _F32,
         "other_thread"),
    _bug(76, "epilogue_of_thread", "adds the bias in the thread that built it", f"{_BF16}_bias",
         "other_thread"),
    _bug(77, "reads_aligned_b", "reads B from a multiple of 32 bytes", _BF16,
         "unaligned_buffers"),
    _bug(77, "skips_unaligned_head", "leaves out A before the first multiple of 16 bytes", _F32,
         "unaligned_buffers"),
    _bug(77, "stores_aligned", "stores to a multiple of 16 bytes", _F32, "unaligned_buffers"),
    _bug(78, "relu_by_magnitude", "relu by (x + |x|) / 2, NaN for minus infinity",
         f"{_F32}_bias_relu", "inf_spreads"),
    _bug(78, "relu_by_difference", "relu by x - min(x, 0), NaN for minus infinity",
         f"{_BF16}_relu", "inf_spreads"),
    _bug(79, "steps_in_eleven_bits", "counts steps of 32 along K in eleven bits", _F32,
         "long_axes"),
    _bug(79, "products_in_signed_16", "ends at 32767 products", _BF16, "long_axes"),
    _bug(79, "rows_of_b_in_16_bits", "begins anew behind 65536 rows of B",
         "matmul_64x64x64_s8t_s8n_s32t", "long_axes"),
    _bug(80, "columns_past_1024", "has a thread for each of 1024 columns", _F32, "long_axes"),
    _bug(80, "column_tiles_in_four_bits", "counts columns of tiles in four bits", _BF16,
         "long_axes"),
    _bug(80, "rows_in_16_bits", "counts rows in 16 bits", _F32, "long_axes", "paranoid"),
)  # fmt: skip
