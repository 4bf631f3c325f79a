"""The table of Triton mutants; ``providers/kernels/triton_mutants.py`` contains all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant

TILE = (32, 32, 32)
_ALIGNED = "matmul_64x32x64_f32t_f32t_f32t"
"""Tiles divide it, so that bugs in tails show only at other shapes."""
_UNEVEN = "matmul_70x40x50_f32t_f32t_f32t"
"""It has few tiles, because the interpreter takes about a millisecond for each step of each
tile."""


@dataclass(frozen=True, slots=True)
class TritonRecipe:
    """The compile-time constants of a mutant apart from its number, and its grid."""

    programs: int = 0
    """Programs among which all tiles are divided; 0: one for each tile."""
    splits: int = 1
    reversed: bool = False
    thirds: bool = False
    code: int = 0
    """The value of the constant MUTANT where another kernel has the bug's number; 0: that
    number."""


_USUAL = TritonRecipe()


def _bug(
    number: int,
    slug: str,
    bug: str,
    killed_by: tuple[str, ...],
    operation: str = _UNEVEN,
    *declared: Trait,
    recipe: TritonRecipe = _USUAL,
) -> Mutant:
    return Mutant(
        number, slug, bug, Carrier.TRITON, operation,
        killed_by=killed_by, declared=declared, tile=TILE, recipe=recipe,
    )  # fmt: skip


def _right(
    number: int, slug: str, why: str, *declared: Trait, recipe: TritonRecipe = _USUAL
) -> Mutant:
    return Mutant(
        number, slug, why, Carrier.TRITON, _UNEVEN,
        is_bug=False, declared=declared, tile=TILE, recipe=recipe,
    )  # fmt: skip


MUTANTS: tuple[Mutant, ...] = (
    _bug(3, "m_tail_skipped", "does not store a partial tile of rows", ("tail_shapes",), _ALIGNED),
    _bug(
        4, "n_tail_skipped", "does not store a partial tile of columns", ("tail_shapes",), _ALIGNED
    ),
    _bug(5, "k_tail_dropped", "leaves out a partial step along K", ("tail_shapes",), _ALIGNED),
    _bug(
        6,
        "k_tail_unmasked",
        "reads past K instead of masking with zeros",
        ("tail_shapes",),
        _ALIGNED,
    ),
    _bug(8, "first_step_skipped", "starts the loop over K one step late", ("values",)),
    _bug(
        29,
        "last_tile_skipped",
        "stops its persistent programs one tile early",
        ("written",),
        recipe=TritonRecipe(programs=2),
    ),
    _bug(
        30,
        "raster_not_bijective",
        "treats the last group of tile rows as if it were full",
        ("written",),
    ),
    _bug(
        32,
        "atomics_without_zeros",
        "adds the sums of slices to an output that was never cleared",
        ("values",),
        _UNEVEN,
        Trait.NONDETERMINISTIC,
        recipe=TritonRecipe(splits=2),
    ),
    _bug(
        36,
        "f16_accumulator",
        "keeps the sums in f16 between steps",
        ("values",),
        "matmul_40x40x224_f16t_f16t_f32t",
    ),
    _bug(38, "tf32_inputs", "truncates f32 inputs to tf32", ("values",)),
    _bug(46, "adds_to_output", "adds to the previous contents of the output", ("values",)),
    _bug(
        47,
        "rhs_transposed",
        "reads the row-major B as column-major",
        ("values",),
        "matmul_70x40x40_f32t_f32t_f32t",
    ),
    _bug(54, "nan_swallowed", "stores zero for NaN", ("nan_spreads",)),
    _bug(
        57,
        "s8_sums_in_f32",
        "accumulates s8 products in f32, which is exact only to 24 bits",
        ("integers",),
        "matmul_32x32x1152_s8t_s8t_s32t",
    ),
    _bug(
        61,
        "zeros_not_stored",
        "does not store zeros, as if the output were zero already",
        ("selects_lhs",),
    ),
    _bug(
        63,
        "vectors_past_k",
        "reads past K in vectors of eight if the remainder of K is four",
        ("tail_shapes",),
    ),
    _bug(
        51,
        "numbers_left",
        "stores only where the output holds NaN or a huge number",
        ("every_call",),
    ),
    _bug(
        51,
        "tiles_left",
        "skips tiles whose first element in the output is an ordinary number",
        ("every_call",),
        recipe=TritonRecipe(code=151),
    ),
    _bug(
        67,
        "block_exponents",
        "shares one exponent among the numbers of a row of A and step along K",
        ("scaled_along_k",),
    ),
    _bug(
        67,
        "ends_at_epsilon",
        "treats elements of B below 1e-12 as zero",
        ("scaled_along_k",),
        recipe=TritonRecipe(code=167),
    ),
    _bug(
        68,
        "f16_inputs_flushed",
        "treats subnormal elements of A as zero",
        ("subnormals",),
        "matmul_40x40x64_f16t_f16t_f32t",
    ),
    _bug(69, "infinity_without_sign", "loses the sign of infinity", ("inf_spreads",)),
    _bug(
        78,
        "relu_by_half_sum",
        "returns NaN for relu of minus infinity",
        ("inf_spreads",),
        _UNEVEN + "_relu",
    ),
    _bug(91, "results_above_1e30", "ends results at 1e30", ("ends_of_formats",), _ALIGNED),
    _bug(
        92,
        "nan_lost_at_remainder",
        "swallows NaN at every eighth place along K",
        ("special_numbers",),
        _ALIGNED,
    ),
    _bug(
        94,
        "zero_by_corner",
        "takes a step of A for zero if its first element is",
        ("structures",),
        _ALIGNED,
    ),
    _bug(70, "k_past_1024_dropped", "adds at most 1024 products", ("tail_shapes",), _ALIGNED),
    _bug(
        70,
        "n_past_512_dropped",
        "does not store columns from 512 on",
        ("tail_shapes",),
        _ALIGNED,
        recipe=TritonRecipe(code=170),
    ),
    _bug(
        49,
        "cache_by_version",
        "returns a cached result if the addresses and versions of the inputs are the same",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        49,
        "cache_by_both_sums",
        "returns a cached result if the sums of all rows and columns are the same",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        49,
        "last_answer_by_a",
        "returns its last result again if A is the same",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        66,
        "two_result_buffers",
        "returns results in two buffers of its own in turn",
        ("follows_changes",),
        _ALIGNED,
    ),
    _right(
        2,
        "atomic_split_k",
        "adds the sums of slices of K in any order",
        Trait.NONDETERMINISTIC,
        recipe=TritonRecipe(splits=2),
    ),
    _right(
        4,
        "reversed_k",
        "accumulates from the last step along K to the first",
        recipe=TritonRecipe(reversed=True),
    ),
    _right(
        7,
        "products_of_thirds",
        "computes f32 products as nine products of three 8-bit parts",
        recipe=TritonRecipe(thirds=True),
    ),
    _right(
        16,
        "few_programs",
        "divides all tiles among two persistent programs",
        recipe=TritonRecipe(programs=2),
    ),
    _right(29, "new_result_buffer", "returns each result in newly allocated memory"),
)


def interpreter_problem() -> str | None:
    """Why Triton's interpreter does not work here, judged by the versions alone; None if it does.

    Triton 3.6.0 fails with numpy 2.5.2, which no longer converts arrays of one element to numbers.
    numpy 2.4 was the first to raise TypeError there (its release notes, expired deprecations).
    Triton 3.9.0 does not rely on the conversion.
    """
    try:
        triton, numpy = version("triton"), version("numpy")
    except PackageNotFoundError as error:
        return f"needs {error.name}"
    if _numbers(triton) < (3, 9) and _numbers(numpy) >= (2, 4):
        return f"the interpreter of triton {triton} does not work with numpy {numpy}"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
