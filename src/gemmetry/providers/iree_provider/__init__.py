"""The provider ``iree``. Start at ``provider.py``; ``compiling/linalg.py`` writes the sources.

``tiling/`` holds the forms of configurations, ``compiling/`` compiles, and ``device.py`` and
``executable.py`` run.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits, TunedFormat

TRAITS = ProviderTraits(
    spec_keys=("iree_bin_dir",),
    is_dispatch_profilers=True,
    legacy_label="IREE Codegen",
    support_targets=("cpu", "cuda-sm_80", "cuda-sm_89", "hip-gfx942"),
    colour=0,
    tuned_formats=(
        TunedFormat(name="iree", suffixes=(".mlir",), module=f"{__name__}.tuning_spec"),
    ),
)
