"""Planted kernels in Triton; ``kernels/triton_mutants.py`` carries them all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant

TILE = (32, 32, 32)
_ALIGNED = "matmul_64x32x64_f32t_f32t_f32t"
"""Tiles divide it: only another shape shows what is wrong with tails."""
_UNEVEN = "matmul_70x40x50_f32t_f32t_f32t"
"""Few tiles, because the interpreter takes about a millisecond for each step of each tile."""


@dataclass(frozen=True, slots=True)
class TritonRecipe:
    """The compile-time constants of a planted kernel besides its number, and its grid."""

    programs: int = 0
    """That share all tiles; 0: one for each tile."""
    splits: int = 1
    reversed: bool = False
    thirds: bool = False
    code: int = 0
    """What the constant MUTANT is, where the bug's number stands for another kernel; 0: that."""


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


PLANTED: tuple[Mutant, ...] = (
    _bug(3, "m_tail_skipped", "a partial tile of rows is not stored", ("tail_shapes",), _ALIGNED),
    _bug(
        4, "n_tail_skipped", "a partial tile of columns is not stored", ("tail_shapes",), _ALIGNED
    ),
    _bug(5, "k_tail_dropped", "a partial tile along K is left out", ("tail_shapes",), _ALIGNED),
    _bug(6, "k_tail_unmasked", "reads on past K instead of zeros", ("tail_shapes",), _ALIGNED),
    _bug(8, "first_step_skipped", "the loop over K begins one step late", ("values",)),
    _bug(
        29,
        "last_tile_skipped",
        "persistent programs stop one tile early",
        ("written",),
        recipe=TritonRecipe(programs=2),
    ),
    _bug(
        30,
        "raster_not_bijective",
        "the last group of tile rows is walked as if it were full",
        ("written",),
    ),
    _bug(
        32,
        "atomics_without_zeros",
        "slices add to an output that nobody set to zero",
        ("values",),
        _UNEVEN,
        Trait.NONDETERMINISTIC,
        recipe=TritonRecipe(splits=2),
    ),
    _bug(
        36,
        "f16_accumulator",
        "sums are kept in f16 between steps",
        ("values",),
        "matmul_40x40x224_f16t_f16t_f32t",
    ),
    _bug(38, "tf32_inputs", "inputs are cut to tf32 where f32 was promised", ("values",)),
    _bug(46, "adds_to_output", "adds to what the output held", ("values",)),
    _bug(
        47,
        "rhs_transposed",
        "reads B as if it were stored by columns",
        ("values",),
        "matmul_70x40x40_f32t_f32t_f32t",
    ),
    _bug(54, "nan_swallowed", "a NaN becomes zero on the way out", ("nan_spreads",)),
    _bug(
        57,
        "s8_sums_in_f32",
        "multiplies s8 as f32, whose sums end at 24 bits",
        ("integers",),
        "matmul_32x32x1152_s8t_s8t_s32t",
    ),
    _bug(61, "zeros_not_stored", "takes the output to be zero already", ("selects_lhs",)),
    _bug(63, "vectors_past_k", "reads vectors of eight where K leaves four", ("tail_shapes",)),
    _bug(51, "numbers_left", "replaces what is no number only", ("every_call",)),
    _bug(
        51,
        "tiles_left",
        "leaves tiles that begin with a number",
        ("every_call",),
        recipe=TritonRecipe(code=151),
    ),
    _bug(67, "block_exponents", "rows of a step share an exponent", ("scaled_along_k",)),
    _bug(
        67,
        "ends_at_epsilon",
        "takes elements of B below 1e-12 for zero",
        ("scaled_along_k",),
        recipe=TritonRecipe(code=167),
    ),
    _bug(
        68,
        "f16_inputs_flushed",
        "takes subnormal elements of A for zero",
        ("subnormals",),
        "matmul_40x40x64_f16t_f16t_f32t",
    ),
    _bug(69, "infinity_without_sign", "loses the sign of infinity", ("inf_spreads",)),
    _bug(
        78, "relu_by_half_sum", "relu of minus infinity is NaN", ("inf_spreads",), _UNEVEN + "_relu"
    ),
    _bug(70, "k_past_1024_dropped", "sums no more than 1024 products", ("tail_shapes",), _ALIGNED),
    _bug(
        70,
        "n_past_512_dropped",
        "stores no columns from 512 on",
        ("tail_shapes",),
        _ALIGNED,
        recipe=TritonRecipe(code=170),
    ),
    _bug(
        49,
        "cache_by_version",
        "answers from a cache by the inputs' addresses and versions",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        49,
        "cache_by_both_sums",
        "answers from a cache by the sums of rows and columns",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        49,
        "last_answer_by_a",
        "gives its last answer again where A is the same",
        ("follows_changes",),
        _ALIGNED,
    ),
    _bug(
        66,
        "two_result_buffers",
        "returns results in two buffers in turn",
        ("follows_changes",),
        _ALIGNED,
    ),
    _right(
        2,
        "atomic_split_k",
        "slices of K add in any order",
        Trait.NONDETERMINISTIC,
        recipe=TritonRecipe(splits=2),
    ),
    _right(
        4,
        "reversed_k",
        "sums from the last tile along K to the first",
        recipe=TritonRecipe(reversed=True),
    ),
    _right(
        7,
        "products_of_thirds",
        "f32 as nine products of three parts of eight bits",
        recipe=TritonRecipe(thirds=True),
    ),
    _right(
        16,
        "few_programs",
        "two persistent programs share all tiles",
        recipe=TritonRecipe(programs=2),
    ),
    _right(29, "new_result_buffer", "returns every result in memory of its own"),
)


def interpreter_problem() -> str | None:
    """Why Triton's interpreter does not work here, from the versions alone; None if it does.

    Seen: Triton 3.6.0 fails with numpy 2.5.2, which does not turn arrays of one element into
    numbers any more; numpy 2.4 was the first that raises TypeError there (its release notes,
    expired deprecations). Triton 3.9.0 does not rely on it.
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
