"""The decorators of mutants whose author had not seen the checks, and which the authors of the
checks had not seen.

Their score therefore shows how well the checks find bugs for which they were not written, and no
check is listed that should kill them. A mutant for which a check is written later no longer counts
as unseen.
"""

from __future__ import annotations

from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant, Planter, plant

ON_F32 = "matmul_128x128x128_f32t_f32t_f32t"
ON_F16 = "matmul_128x128x256_f16t_f16n_f32t"
ON_BF16 = "matmul_128x128x256_bf16t_bf16n_bf16t"
ON_FACTORS = "matmul_128x128x128_f32t_f32t_f32t_alpha0p5_beta2"
ON_ROW_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"
ON_BATCH = "batch_matmul_3x64x64x64"


def bug(number: int, slug: str, bug: str, operation: str) -> Planter:
    """Register the decorated class as a mutant; the arguments are the fields of :class:`Mutant`."""
    return plant(Mutant(number, slug, bug, Carrier.HOST, operation, is_unseen=True))


def tricky(number: int, slug: str, why: str, operation: str, *declared: Trait) -> Planter:
    """Register the decorated class as a correct kernel that is easy to mistake for wrong."""
    return plant(
        Mutant(
            number, slug, why, Carrier.HOST, operation,
            is_bug=False, is_unseen=True, declared=declared,
        )
    )  # fmt: skip
