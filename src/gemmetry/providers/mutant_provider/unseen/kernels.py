"""Planted kernels that nobody saw who wrote the checks, nor the other way round.

They were written without a look at the checks, so that their score says what the checks do about
bugs they were not made for. Which check should kill them is therefore not listed. Checks that are
written for one of them later make it a seen one.
"""

from __future__ import annotations

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant, Planter, plant

ON_F32 = "matmul_128x128x128_f32t_f32t_f32t"
ON_F16 = "matmul_128x128x256_f16t_f16n_f32t"
ON_BF16 = "matmul_128x128x256_bf16t_bf16n_bf16t"
ON_FACTORS = "matmul_128x128x128_f32t_f32t_f32t_alpha0p5_beta2"
ON_ROW_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"
ON_BATCH = "batch_matmul_3x64x64x64"


def bug(number: int, slug: str, bug: str, operation: str) -> Planter:
    """Plant the decorated class as a bug; the arguments are the fields of :class:`Mutant`."""
    return plant(Mutant(number, slug, bug, Carrier.HOST, operation, is_unseen=True))


def tricky(number: int, slug: str, why: str, operation: str, *declared: Trait) -> Planter:
    """Plant the decorated class as a kernel that is right and easy to mistake for wrong."""
    return plant(
        Mutant(
            number, slug, why, Carrier.HOST, operation,
            is_bug=False, is_unseen=True, declared=declared,
        )
    )  # fmt: skip
