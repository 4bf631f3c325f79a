"""Planted kernels on the host vehicle.

Shapes are small, so that hundreds of launches take seconds, and mostly multiples of the tile, so
that a bug shows only where a check makes it show.
"""

from __future__ import annotations

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.catalogue import Carrier, Mutant

_BF16 = "matmul_256x128x256_bf16t_bf16n_bf16t"
"""8 tiles, 8 steps along K."""
_DEEP = "matmul_128x128x512_bf16t_bf16n_bf16t"
"""4 tiles, 16 steps along K."""
_F32 = "matmul_128x128x128_f32t_f32t_f32t"
_NINE_TILES = "matmul_192x192x128_f32t_f32t_f32t"
_UNEVEN_K = "matmul_128x128x80_f32t_f32t_f32t"
_ROW_SCALES = "matmul_256x128x256_e4m3t_e4m3n_bf16t_scalerow"
_S8 = "matmul_128x128x128_s8t_s8t_s32t"
_S8_DEEP = "matmul_64x64x1152_s8t_s8t_s32t"
"""Sums beyond 2^24, to which f32 counts."""
_E4M3 = "matmul_128x128x128_e4m3t_e4m3n_f32t"
_GELU = "matmul_128x128x128_f32t_f32t_f32t_gelu"
_ONE_BLOCK_OF_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"

_BOTH = "matmul_128x128x128_f32t_f32t_f32t_alpha0p1_beta1p7"
"""Factors that are no powers of two."""

_F16 = "matmul_128x128x128_f16t_f16n_f16t"

_RANDOM = Trait.NONDETERMINISTIC


def _bug(
    number: int,
    slug: str,
    bug: str,
    operation: str,
    *killed_by: str,
    declared: tuple[Trait, ...] = (),
) -> Mutant:
    return Mutant(
        number, slug, bug, Carrier.HOST, operation, killed_by=killed_by, declared=declared
    )


def _right(
    number: int,
    slug: str,
    why: str,
    operation: str,
    *declared: Trait,
    tile: tuple[int, int, int] = (64, 64, 32),
) -> Mutant:
    return Mutant(
        number, slug, why, Carrier.HOST, operation, is_bug=False, declared=declared, tile=tile
    )


_MEMORY = (
    _bug(1, "returns_zeros", "returns zeros", _F32, "values"),
    _bug(2, "never_writes", "computes, and stores nothing", _F32, "written"),
    _bug(2, "returns_freed_memory", "returns memory that was just freed", _F32, "values"),
    _bug(3, "m_tail_skipped", "skips a last tile of fewer rows", _F32, "tail_shapes"),
    _bug(4, "n_tail_skipped", "skips a last tile of fewer columns", _F32, "tail_shapes"),
    _bug(
        4,
        "columns_past_192_dropped",
        "has warps for 192 columns only",
        "matmul_64x256x128_f16t_f16t_f32t",
        "written",
    ),
    _bug(5, "k_tail_dropped", "drops the rest of K that fills no step", _F32, "tail_shapes"),
    _bug(
        6,
        "k_tail_reads_past_b",
        "reads rows of B past K, and multiplies them by zero",
        _UNEVEN_K,
        "values",
    ),
    _bug(7, "stores_past_rows", "stores rows past M", _F32, "tail_shapes"),
    _bug(7, "stores_before_output", "stores a few bytes before C", _F32, "red_zones"),
    _bug(
        13,
        "launch_fails_silently",
        "asks for too much shared memory, and nobody for the error",
        "matmul_64x64x1024_bf16t_bf16n_bf16t",
        "written",
    ),
    _bug(17, "hangs", "waits for more bytes than are copied, for ever", _F32, "timeout"),
    _bug(
        25,
        "tail_rows_rotated",
        "swaps halves of a last group of fewer than 16 rows",
        _BF16,
        "tail_shapes",
    ),
    _bug(28, "odd_tile_skipped", "skips a tile without a partner in its cluster", _F32,
         "tail_shapes"),
    _bug(29, "full_last_wave_skipped", "skips a last wave of tiles that is full", _NINE_TILES,
         "tail_shapes"),
    _bug(30, "raster_no_bijection", "visits some tiles twice and others never, unless square", _F32,
         "tail_shapes"),
    _bug(
        31,
        "narrow_index",
        "offsets into C wrap around (at 2^16, standing for 2^32)",
        "matmul_320x256x64_f32t_f32t_f32t",
        "written",
    ),
    _bug(45, "beta_zero_reads_output", "adds 0 · C, which is NaN where C is", _F32, "values"),
    _bug(46, "adds_to_output", "adds to what the output held", _F32, "values"),
    _bug(47, "result_transposed", "stores the result by columns", _F32, "values"),
    _bug(47, "b_not_transposed", "reads B by rows, which is stored by columns",
         "matmul_128x128x128_bf16t_bf16n_f32t", "values"),
    _bug(
        54,
        "neighbour_row_leaks",
        "masks A's tail along K, which is the next row, with zeros as factors: NaN leaks",
        _UNEVEN_K,
        "nan_spreads",
    ),
)  # fmt: skip

_PIPELINE = (
    _bug(8, "half_step_missed", "leaves out the last 16 products of K", _DEEP, "values"),
    _bug(9, "step_counted_twice", "counts a step twice where the ring wraps", _DEEP, "values"),
    _bug(10, "barrier_missing", "multiplies before a stage is filled, at times", _DEEP,
         "every_call"),
    _bug(11, "barrier_in_branch", "half of the warps skip a barrier in tiles at the edge", _BF16,
         "tail_shapes"),
    _bug(12, "stages_share_memory", "has one buffer for all stages of B", _DEEP, "values"),
    _bug(14, "warps_share_staging", "stages all warps' columns at one place", _BF16, "values"),
    _bug(15, "wrong_phase", "consumes a stage of the first round unfilled, at times", _BF16,
         "every_call"),
    _bug(16, "too_few_bytes_expected", "consumes half-filled stages where memory is cold", _BF16,
         "tail_shapes"),
    _bug(18, "live_stage_overwritten", "fills a stage that is still read, at times", _DEEP,
         "every_call"),
    _bug(19, "proxy_fence_missing", "stores rows of shared memory too early, at times", _BF16,
         "every_call"),
    _bug(20, "staging_reused_early", "overwrites a tile that is still being stored, at times",
         _BF16, "every_call"),
    _bug(21, "exits_before_store", "ends before its last tile is stored, at times", _BF16,
         "every_call"),
    _bug(22, "accumulator_read_early", "reads sums before the last product is in, at times", _DEEP,
         "every_call"),
    _bug(23, "wrong_swizzle", "reads B's columns swizzled wrongly in half of each stage", _BF16,
         "values"),
    _bug(24, "fragment_rows_swapped", "swaps rows r and r + 8 of each 16", _BF16, "values"),
    _bug(27, "multicast_to_both", "gives both blocks of a cluster the first one's A", _BF16,
         "values"),
)  # fmt: skip

_SHARING = (
    _bug(32, "split_k_not_cleared", "clears the slices' sums at the first launch only", _DEEP,
         "second_launch", declared=(_RANDOM,)),
    _bug(33, "semaphore_not_reset", "does not reset the slices' semaphore", _DEEP,
         "second_launch"),
    _bug(34, "uneven_slice_dropped", "drops steps that slices do not divide evenly", _DEEP,
         "tail_shapes"),
    _bug(35, "peer_read_early", "adds a peer's sum of the launch before, at times", _DEEP,
         "tail_shapes"),
)  # fmt: skip

_ARITHMETIC = (
    _bug(36, "f16_sums", "sums in f16", _DEEP, "integers"),
    _bug(36, "bf16_sums", "sums in bf16", _DEEP, "integers"),
    _bug(36, "bf16_partials", "keeps the slices' sums in bf16", _DEEP, "integers"),
    _bug(37, "fp8_sums_not_promoted", "sums fp8 products in 14 bits",
         "matmul_64x64x2048_e4m3t_e4m3n_f32t", "fp8_promotion"),
    _bug(38, "tf32_inputs", "rounds f32 inputs to tf32", _F32, "selects_lhs"),
    _bug(39, "f16_inputs", "converts bf16 inputs to f16, whose range is smaller", _BF16,
         "selects_lhs"),
    _bug(39, "fp8_inputs", "converts bf16 inputs to fp8", _BF16, "values"),
    _bug(40, "result_truncated", "truncates the result to bf16", _BF16, "integers"),
    _bug(40, "ties_away_from_zero", "rounds halfway cases away from zero, not to even", _BF16,
         "integers"),
    _bug(40, "result_scaled", "the result is 1.001 times too large", _DEEP, "integers"),
    _bug(41, "row_scale_off_by_one", "takes the next row's scale in a tile's last row",
         _ROW_SCALES, "values"),
    _bug(41, "scale_of_b_ignored", "takes A's scale for B",
         "matmul_128x128x128_e4m3t_e4m3n_bf16t_scaletensor", "values"),
    _bug(42, "scale_layout_transposed", "reads scales as 4 × 32 that lie as 32 × 4", _ROW_SCALES,
         "values"),
    _bug(42, "scale_layout_unpadded", "packs less than 128 scales without padding",
         _ONE_BLOCK_OF_SCALES, "tail_shapes"),
    _bug(43, "scales_as_exponents", "keeps scales as e8m0: no sign, powers of two only",
         _ROW_SCALES, "scale_factors"),
    _bug(44, "pairs_swapped", "unpacks pairs along K in the wrong order",
         "matmul_128x128x128_s8t_s8t_s32t", "values"),
    _bug(45, "alpha_beta_swapped", "takes alpha for beta and beta for alpha",
         "matmul_128x128x128_f32t_f32t_f32t_alpha0p5_beta2", "values"),
    _bug(54, "nan_swallowed", "takes NaN for zero", _F32, "nan_spreads"),
)  # fmt: skip

_CALLERS = (
    _bug(26, "first_pointers_kept", "keeps the first launch's pointers to A and B", _F32,
         "integers"),
    _bug(26, "output_table_full", "has descriptors for 20 outputs and skips all others", _F32,
         "after_timing"),
    _bug(48, "addend_as_scratch", "overwrites C, an input, with the result",
         "matmul_128x128x128_f32t_f32t_f32t_beta1", "inputs_unchanged"),
    _bug(49, "cache_by_pointer", "answers from a cache by the inputs' addresses", _F32,
         "in_place_change"),
    _bug(50, "work_left_to_thread", "returns at once and computes in a thread", _F32, "written"),
    _bug(50, "thread_writes_later", "a thread writes again after the launch", _F32,
         "unordered_work"),
    _bug(50, "lazy_result", "returns an object that computes when it is looked at", _F32, "form"),
    _bug(51, "every_tenth_skipped", "does nothing at every tenth launch", _F32, "every_call"),
    _bug(51, "known_outputs_skipped", "does nothing for an output that it has filled before", _F32,
         "in_place_change"),
    _bug(51, "back_to_back_skipped", "does nothing where launches follow at once, as when timed",
         _F32, "every_call"),
    _bug(52, "sums_not_products", "multiplies sums: right for constant data only", _F32, "values"),
    _bug(52, "fixed_seed_remembered", "knows inputs again by their first elements", _F32,
         "nan_spreads"),
)  # fmt: skip

_STRESS = (
    _bug(55, "workspace_taken_for_zero", "adds to a workspace that it never set to zero", _F32,
         "spoiled_scratch"),
    Mutant(56, "fixed_wait_for_partner", "waits a fixed time for another block's part of K",
            Carrier.HOST, _F32, killed_by=("under_load",), level="paranoid"),
)  # fmt: skip

_NUMBERS = (
    _bug(57, "s8_sums_in_f32", "sums s8 products in f32", _S8_DEEP, "integers"),
    _bug(58, "pairs_saturate", "saturates sums of two s8 products to 16 bits", _S8, "integers"),
    _bug(58, "offset_pairs_saturate", "does so with A + 128, as pmaddubsw does", _S8, "values"),
    _bug(59, "negated_in_s8", "negates -128 in 8 bits", _S8, "integers"),
    _bug(59, "minus_128_clamped", "takes -128 for -127", _S8, "integers"),
    _bug(60, "e4m3_top_reserved", "takes e4m3 numbers from 256 on for infinity and NaN", _E4M3,
         "selects_lhs"),
    _bug(60, "scaled_e4m3_top_reserved", "does so where there are scale factors", _ROW_SCALES,
         "selects_lhs"),
    _bug(60, "biased_e4m3_top_reserved", "does so where a bias is added as well",
         "matmul_128x128x128_e4m3t_e4m3n_bf16t_scaletensor_bias", "selects_lhs"),
    _bug(60, "e5m2_top_counted", "takes e5m2's infinity and NaN for numbers",
         "matmul_128x128x128_e5m2t_e5m2n_f32t", "nan_spreads"),
    _bug(64, "tanh_gelu", "approximates gelu by tanh", _GELU, "tail_shapes"),
    _bug(64, "tanh_gelu_to_bf16", "does so where the result is bf16",
         "matmul_128x128x128_bf16t_bf16n_bf16t_gelu", "selects_lhs"),
)  # fmt: skip

_EDGES = (
    _bug(61, "zero_rows_skipped", "leaves out rows of A that are zero", _BF16, "selects_lhs"),
    _bug(61, "zero_by_zero", "divides rows by their largest number, zero or not", _F32,
         "selects_lhs"),
    _bug(62, "minimum_with_output", "stores the minimum of the result and the old output", _F32,
         "selects_lhs"),
    _bug(62, "maximum_with_output", "stores the maximum of the result and the old output",
         "matmul_128x128x128_f16t_f16n_f16t", "selects_lhs"),
    _bug(62, "maximum_behind_relu", "does so where no result is negative",
         "matmul_128x128x128_f16t_f16n_f16t_relu", "selects_rhs"),
    _bug(63, "vectors_past_k", "reads vectors of eight where K leaves four", _BF16,
         "tail_shapes"),
    _bug(63, "s8_vectors_past_k", "reads vectors of sixteen where K leaves eight",
         "matmul_128x128x128_s8t_s8n_s32t", "tail_shapes"),
)  # fmt: skip

_FACTORS = (
    _bug(65, "alpha_twice", "multiplies A by alpha, and the product as well", _BOTH, "values"),
    _bug(65, "alpha_twice_in_f64", "does so in f64",
         "matmul_96x128x80_f64t_f64t_f64t_alpha1p7", "values"),
    _bug(65, "alpha_for_addend_too", "multiplies beta * C by alpha as well", _BOTH, "values"),
    _bug(65, "alpha_as_integer", "takes alpha as a whole number",
         "matmul_128x128x128_f32t_f32t_f32t_alpha2_beta1p7", "alpha_beta"),
    _bug(65, "alpha_without_sign", "takes the magnitude of alpha where beta is zero",
         "matmul_128x128x128_f32t_f32t_f32t_alpha2", "alpha_beta"),
    _bug(65, "alpha_in_f16", "rounds alpha to f16", _BOTH, "values"),
    _bug(65, "alpha_in_bf16", "rounds alpha to bf16",
         "matmul_64x128x2048_f32t_f32t_f32t_alpha1p7", "selects_rhs"),
    _bug(65, "alpha_in_bf16_to_bf16", "does so where the result is bf16",
         "matmul_128x128x128_bf16t_bf16n_bf16t_alpha0p1", "values"),
    _bug(65, "beta_in_bf16", "rounds beta to bf16", _BOTH, "values"),
    _bug(65, "beta_ignored", "adds nothing to the product", _BOTH, "values"),
    _bug(65, "beta_taken_for_one", "adds C, whatever beta is",
         "matmul_128x128x128_f32t_f32t_f32t_beta1", "alpha_beta"),
    _bug(65, "beta_for_product", "multiplies the whole sum by beta", _BOTH, "values"),
    _bug(65, "beta_for_residual", "multiplies the residual by beta, and C by one",
         "matmul_128x128x128_f16t_f16n_f16t_alpha1p7_betam0p3_residual", "values"),
    _bug(65, "alpha_behind_relu", "multiplies by alpha behind relu",
         "matmul_128x128x128_bf16t_bf16n_bf16t_alpham2_relu", "values"),
    _bug(65, "alpha_behind_bias", "multiplies by alpha behind the bias",
         "matmul_128x128x128_f32t_f32t_f32t_alpha0p1_bias", "values"),
    _bug(65, "alpha_folded_in_bf16", "multiplies A by alpha in bf16",
         "matmul_128x128x128_bf16t_bf16n_f32t_alpha0p1", "values"),
)  # fmt: skip

_SCALE = (
    _bug(67, "block_exponents", "numbers of one row and step share an exponent", _F32,
         "scaled_along_k"),
    _bug(67, "block_exponents_of_b", "numbers of one column and step share an exponent", _DEEP,
         "scaled_along_k"),
    _bug(67, "fixed_point_rows", "rows of A are whole numbers and a factor", _BF16,
         "scaled_along_k"),
    _bug(67, "rows_normalised_in_range", "divides rows by their largest number, in f32", _F32,
         "scaled_along_k"),
    _bug(67, "fixed_point", "numbers are multiples of 2^-40", _BF16, "scaled_along_k"),
    _bug(67, "ends_at_epsilon", "takes what is below 1e-12 for zero", _F32, "scaled_along_k"),
    _bug(67, "epsilon_in_divisor", "divides by the largest number plus 1e-12", _F32,
         "scaled_along_k"),
    _bug(67, "small_bf16_flushed", "takes bf16 numbers below 2^-60 for zero", _BF16,
         "scaled_along_k"),
    _bug(67, "clamps_at_2_30", "ends numbers at 2^30", _BF16, "scaled_along_k"),
    _bug(67, "squares_on_the_way", "takes magnitudes as roots of squares", _BF16,
         "scaled_along_k"),
    _bug(68, "f16_inputs_flushed", "takes subnormal f16 numbers for zero", _F16, "subnormals"),
    _bug(68, "f16_results_flushed", "stores zero for subnormal f16 results",
         "matmul_128x128x128_f16t_f16n_f16t_alpha1em06", "values"),
    _bug(68, "f16_saturates", "ends f16 results at 65504", _F16, "overflow"),
    _bug(68, "overflows_upwards", "makes +infinity of results that are too small", _F16,
         "overflow"),
)  # fmt: skip

_SPECIAL = (
    _bug(69, "infinity_without_sign", "makes +infinity of -infinity", _F32, "inf_spreads"),
    _bug(69, "nan_spoils_neighbours", "leaves out products in tiles with a NaN", _F32,
         "nan_spreads"),
    _bug(69, "nan_cleaned_in_place", "makes zeros of NaN in A, an input", _BF16, "nan_spreads"),
    _bug(69, "infinity_cleaned_in_place", "makes numbers of infinity in B, an input", _F32,
         "inf_spreads"),
    _bug(69, "workspace_times_zero", "clears a workspace with a factor of zero", _F32,
         "nan_spreads"),
    _bug(69, "nan_in_padding", "multiplies what lies behind K, NaN of the next row, by zero", _F32,
         "tail_shapes"),
)  # fmt: skip

_SIZES = (
    _bug(70, "one_column_without_b", "takes another path where N is 1, and forgets B", _F32,
         "tail_shapes"),
    _bug(70, "eight_columns_in_pairs", "exchanges pairs of columns where N is 8", _BF16,
         "tail_shapes"),
    _bug(70, "one_product_without_b", "stores A where K is 1", _F32, "tail_shapes"),
    _bug(70, "columns_past_512_dropped", "has a thread for each of 512 columns", _F32,
         "tail_shapes"),
    _bug(70, "products_past_1024_dropped", "has room for the steps of 1024 products", _BF16,
         "tail_shapes"),
    _bug(71, "index_error_on_tail", "ends in IndexError where M leaves a rest", _F32,
         "tail_shapes"),
    _bug(71, "recursion_on_tail", "calls itself for ever where K leaves a rest", _F32,
         "tail_shapes"),
    _bug(71, "key_error_on_tail", "ends in KeyError where N leaves a rest", _BF16, "tail_shapes"),
)  # fmt: skip

_CORRECT = (
    _right(1, "split_k", "slices of K, added in order", _DEEP),
    _right(2, "split_k_atomics", "slices of K, added in an order that varies", _DEEP, _RANDOM),
    _right(3, "stream_k", "tiles shared unevenly between processors", _DEEP),
    _right(4, "k_reversed", "sums from the end of K", _DEEP),
    _right(4, "kahan_sum", "sums with compensation", _F32),
    _right(4, "pairwise_sum", "sums in pairs", _DEEP),
    _right(5, "truncating_sums", "truncates sums of 65536 positive products",
           "matmul_16x16x65536_bf16t_bf16n_f32t", tile=(16, 16, 512)),
    _right(6, "tf32_tensor_core", "tf32 as requested, truncating sums",
           "matmul_128x128x512_tf32t_tf32n_f32t"),
    _right(6, "tf32_by_policy", "rounds f32 to tf32, as declared", _F32, Trait.TF32),
    _right(7, "bf16x9", "f32 as nine products of bf16 parts", _F32),
    _right(8, "fp8_promoted", "fp8 sums of 14 bits, promoted every 128",
           "matmul_64x64x1024_e4m3t_e4m3n_bf16t", tile=(64, 64, 128)),
    _right(9, "stochastic_rounding", "rounds up or down by chance", _BF16,
           Trait.STOCHASTIC_ROUNDING, _RANDOM),
    _right(10, "negative_zeros", "zeros are -0, NaN has a payload",
           "matmul_128x128x64_f32t_f32t_f32t_relu"),
    _right(10, "relu_by_maxnum", "relu makes zero of NaN, as maxNum does",
           "matmul_128x128x128_bf16t_bf16n_bf16t_relu"),
    _right(11, "true_overflow", "half of the results are too large for f16",
           "matmul_64x64x256_f16t_f16t_f16t_alpha712"),
    _right(12, "saturating_cast", "saturates where e4m3 overflows",
           "matmul_64x64x256_e4m3t_e4m3n_e4m3t_alpha5"),
    _right(13, "swap_ab", "computes the transposed product", "matmul_96x128x128_bf16t_bf16n_bf16n"),
    _right(13, "padded_view_returned", "returns a view of longer rows", _F32),
    _right(14, "whole_tiles_to_own_buffer", "stores whole tiles to a buffer of its own",
           "matmul_100x90x64_f32t_f32t_f32t"),
    _right(15, "strassen", "one level of Strassen's recursion", _F32, Trait.NORMWISE),
    _right(16, "one_processor", "a persistent kernel on one processor", _NINE_TILES),
    _right(17, "subnormals_flushed", "flushes subnormal numbers, as declared", _F32,
           Trait.FLUSHES_SUBNORMALS),
    _right(18, "fma_contraction", "rounds alpha · sum + beta · C once",
           "matmul_128x128x128_f32t_f32t_f32t_alpha0p7_betam1p3"),
    _right(19, "one_by_one", "adds one product after the other",
           "matmul_64x64x256_f32t_f32t_f32t", tile=(32, 32, 32)),
    _right(20, "rounds_to_overflow", "results around the largest f16",
           "matmul_64x64x2048_f16t_f16t_f16t_alpha88p8"),
    _right(21, "s8_pairs", "sums s8 products in pairs of 32 bits", _S8),
    _right(22, "s8_offset", "adds 128 to A, and takes it off the sums", _S8_DEEP),
    _right(23, "fp8_by_table", "reads e4m3 numbers from a table", _E4M3),
    _right(24, "gelu_by_formula", "approximates the error function within 1.5e-7", _GELU),
    _right(25, "rows_normalised", "divides rows by their largest number, but for zero", _F32,
           Trait.NORMWISE),
    _right(26, "alpha_in_a", "multiplies A by alpha before the sum", _BOTH),
    _right(26, "alpha_in_b", "multiplies B by alpha before the sum",
           "matmul_128x96x512_f32t_f32n_f32t_alpha1p7"),
    _right(26, "alpha_in_b_of_f64", "does so in f64",
           "matmul_96x128x80_f64t_f64t_f64t_alpha0p3333_betam2"),
    _right(26, "alpha_per_step", "multiplies the product of each step by alpha",
           "matmul_128x128x512_f32t_f32t_f32t_alpham1p7_bias_relu"),
    _right(26, "begins_with_addend", "begins the sum with beta * C", _BOTH),
    _right(26, "begins_with_addend_in_bf16", "does so where tensors are bf16",
           "matmul_128x128x128_bf16t_bf16n_bf16t_alpham2_beta0p3333_residual"),
    _right(26, "begins_with_addend_in_f16", "does so where tensors are f16",
           "matmul_128x128x128_f16t_f16n_f16t_alpha0p3333_beta1p7_bias"),
    _right(26, "begins_with_quotient", "begins with (beta / alpha) * C, and multiplies the sum",
           "matmul_128x128x128_f32t_f32t_f32t_alpha0p3333_beta0p1"),
    _right(26, "alpha_in_a_before_gelu", "multiplies A by alpha, gelu follows",
           "matmul_128x128x128_f32t_f32t_f32t_alpha0p1_beta1p7_gelu"),
    _right(26, "scales_in_operands", "multiplies A and B by their scale factors before the sum",
           _ROW_SCALES),
    _right(30, "columns_balanced", "powers of two off columns of A, and onto rows of B", _F32),
    _right(30, "rows_scaled_gently", "divides rows of A by powers of two up to 2^20", _BF16),
    _right(30, "fixed_point_by_norm", "rows of A are whole numbers and a factor, as declared", _F32,
           Trait.NORMWISE),
    _right(31, "nan_by_flag", "marks rows and columns that hold NaN", _F32),
    _right(32, "tails_refused", "refuses sizes that its tile does not divide, and says so", _F32),
)  # fmt: skip

PLANTED: tuple[Mutant, ...] = tuple(
    sorted(
        (
            *_MEMORY,
            *_PIPELINE,
            *_SHARING,
            *_ARITHMETIC,
            *_CALLERS,
            *_STRESS,
            *_NUMBERS,
            *_EDGES,
            *_FACTORS,
            *_SCALE,
            *_SPECIAL,
            *_SIZES,
            *_CORRECT,
        ),
        key=lambda item: (not item.is_bug, item.number),
    )
)
