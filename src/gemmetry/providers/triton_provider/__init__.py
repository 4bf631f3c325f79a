"""The ``triton`` provider: this project's own Triton kernel with its tuning configurations.

``tiles`` holds the configurations and their names, ``architectures`` the facts about GPUs,
``plan`` maps an operation to kernel arguments, ``compiling`` compiles and reads the machine code,
``provider`` combines them. Nothing here imports triton or torch until it is used.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits, TunedFormat

TRAITS = ProviderTraits(
    support_targets=("cuda-sm_90", "hip-gfx942"),
    colour=3,
    tuned_formats=(
        TunedFormat(name="triton", suffixes=(".py", ".json"), module=f"{__name__}.plan"),
    ),
    heuristics_target="TRITON",
)
