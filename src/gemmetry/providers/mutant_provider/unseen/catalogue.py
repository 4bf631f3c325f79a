"""Planted kernels that nobody saw who wrote the checks, nor the other way round.

They were written without a look at the checks, so that their score says what the checks do about
bugs they were not made for. Which check should kill them is therefore not listed. Checks that are
written for one of them later make it a seen one.
"""

from __future__ import annotations

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.catalogue import Carrier, Mutant

_F32 = "matmul_128x128x128_f32t_f32t_f32t"
_F16 = "matmul_128x128x256_f16t_f16n_f32t"
_BF16 = "matmul_128x128x256_bf16t_bf16n_bf16t"
_FACTORS = "matmul_128x128x128_f32t_f32t_f32t_alpha0p5_beta2"
_ROW_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"
_BATCH = "batch_matmul_3x64x64x64"

Row = tuple[str, str, str]

_WRONG: tuple[Row, ...] = (
    ("shared_exponents",
     "small numbers next to a large one in 32 of A's lose their bits", _F16),
    ("fixed_point",
     "rows of A that are small against the whole matrix lose their bits", _BF16),
    ("epsilon_added",
     "rows of A around 1e-8 come out too small, up to zero", _F32),
    ("scale_product_in_f16",
     "products of factors below 6e-8 are zero, above 65504 infinite, others rounded to f16",
     _ROW_SCALES),
    ("scales_of_first_batch",
     "all but the first matrix of a batch get the first one's factors of B",
     f"{_BATCH}_e4m3t_e4m3n_bf16t_scalerow"),
    ("alpha_behind_bias",
     "the bias is multiplied with alpha", "matmul_128x64x128_f32t_f32t_f32t_alpha0p5_bias"),
    ("rounds_before_addend",
     "where C cancels the product, what is left is its rounding error",
     "matmul_128x128x128_bf16t_bf16n_bf16t_beta1"),
    ("alpha_folded",
     "A · alpha is rounded to f16, and overflows there", f"{_F16}_alpha0p3"),
    ("beta_as_flag",
     "adds C once where beta is neither 0 nor 1", "matmul_128x128x128_f32t_f32t_f32t_beta1"),
    ("beta_divided_by_alpha",
     "NaN or infinity instead of beta · C where alpha is 0", _FACTORS),
    ("f16_subnormals_flushed",
     "f16 inputs below 6e-5 count as zero, undeclared", _F16),
    ("remembers_by_b",
     "another A with the same B gets the old result", _F32),
    ("remembers_by_sums",
     "inputs in another order get the old result", _F32),
    ("remembers_by_samples",
     "inputs that differ between the samples get the old result", _F32),
    ("remembers_by_edges",
     "another A with the same first and last row gets the old result", _F32),
    ("reuses_when_close",
     "inputs within 1e-5 or 1e-8 of the last ones get the old result", _F32),
    ("reuses_recent",
     "inputs changed in place within 20 ms get the old result", _F32),
    ("freezes_after_launches",
     "inputs changed in place after 32 launches get the old result", _F32),
    ("packs_b_once",
     "a B changed in place, or a new one at its address, counts as the old one", _F32),
    ("trusts_spot_check",
     "an output whose corners are right stays as it is, wrong elsewhere", _F32),
    ("adds_to_finite",
     "adds to finite numbers that the output held", _F32),
    ("elides_stores",
     "what the output held stays where it is off by less than 0.1%", _F32),
    ("two_buffers_in_turn",
     "a result changes when the second launch after it runs", _F32),
    ("joins_at_next_launch",
     "the last tiles may be written after the launch has returned", _F32),
    ("alpha_of_thread",
     "alpha is 1 on threads other than the one that built it", _FACTORS),
    ("scales_in_place",
     "last bits of A, an input, change at each launch", _F32),
    ("rounds_address_down",
     "an A that does not begin at 16 bytes is read from before its start", _F32),
    ("loses_rarely",
     "in one of 25 launches, eight rows of a tile lack 32 products", _F32),
    ("overlap_added_twice",
     "rows that a last tile shares with the one before are doubled", _F32),
    ("workspace_without_batch",
     "each matrix of a batch holds the sums of those before it", f"{_BATCH}_f32t_f32t_f32t"),
    ("f16_saturated",
     "infinite inputs give 65504", "matmul_128x128x128_f16t_f16n_f16t"),
    ("relu_by_mask",
     "relu of minus infinity is NaN", f"{_F32}_relu"),
    ("outer_product_without_bias",
     "no bias is added where K is 1", f"{_F32}_bias"),
    ("gemv_drops_tail",
     "where N is 1, the last K modulo 8 products are missing", _F32),
    ("sixteen_bit_k",
     "sums K modulo 65536 products", "matmul_64x64x128_f16t_f16n_f32t"),
    ("four_bit_rows",
     "rows from 1024 on are not written", _F32),
    ("batch_stride_rounded",
     "matrices of B whose size is no multiple of 8 are read shifted",
     f"{_BATCH}_f32t_f32t_f32t"),
    ("bias_axis_guessed",
     "the bias is added along the wrong axis where M = N",
     "matmul_128x64x128_f32t_f32t_f32t_bias"),
    ("table_of_full_tiles",
     "an IndexError where M is no multiple of 64", _F32),
    ("halves_columns",
     "a ZeroDivisionError where N is at most 64", _F32),
    ("unrolled_wrongly",
     "three steps left of an unrolled loop count the last one twice", _F32),
)  # fmt: skip
"""Slug, how it is wrong, and the operation it is planted on."""

_RIGHT: tuple[Row, ...] = (
    ("overlap_stored_twice",
     "rows that two tiles share are stored twice, the same", "matmul_100x96x64_f32t_f32t_f32t"),
    ("refuses_odd_k",
     "refuses K that is no multiple of 8 before any launch", _BF16),
    ("alpha_zero_not_read",
     "alpha = 0 leaves A and B unread, as the BLAS prescribes",
     "matmul_128x128x128_f32t_f32t_f32t_alpha0_beta2"),
    ("packed_b_compared",
     "reuses packed B after comparing every byte, and multiplies at each launch", _F32),
    ("f64_sums",
     "sums and scales in f64, more exactly than promised", _ROW_SCALES),
    ("tiles_shuffled",
     "tiles do not depend on each other, so their order changes no bit", _BF16),
    ("threads_joined",
     "both threads have ended when the launch returns", _F32),
    ("sums_kept_in_output",
     "reads from the output only what it has just written there", _F32),
    ("tunes_itself",
     "order of summation differs between the first launches, as declared", _F32),
    ("s8_nibbles",
     "exact: both parts and their products are integers", "matmul_128x128x128_s8t_s8t_s32t"),
    ("gelu_by_erfc",
     "the exact gelu, to all digits", "matmul_128x128x128_f32t_f32t_f32t_gelu"),
    ("f64_factors",
     "multiplies with alpha and beta in f64 as well", _FACTORS),
)  # fmt: skip

_DECLARED = {"tunes_itself": (Trait.NONDETERMINISTIC,)}


def _planted(number: int, row: Row, *, is_bug: bool) -> Mutant:
    slug, bug, operation = row
    return Mutant(
        number, slug, bug, Carrier.HOST, operation,
        is_bug=is_bug, is_unseen=True, declared=_DECLARED.get(slug, ()),
    )  # fmt: skip


PLANTED: tuple[Mutant, ...] = (
    *(_planted(number, row, is_bug=True) for number, row in enumerate(_WRONG, 1)),
    *(_planted(number, row, is_bug=False) for number, row in enumerate(_RIGHT, 1)),
)
