"""The provider ``iree``. Start at ``provider.py``; ``linalg.py`` writes the sources.

``tiles.py`` holds the forms of configurations, ``compiler.py`` and ``batches.py`` compile and keep
what was compiled, and ``device.py`` runs it.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits, TunedFormat

TRAITS = ProviderTraits(
    spec_keys=("iree_bin_dir",),
    is_dispatch_profilers=True,
    legacy_label="IREE Codegen",
    support_targets=("cpu", "cuda-sm_80", "cuda-sm_89", "hip-gfx942"),
    colour=0,
    tuned_formats=(TunedFormat(name="iree", suffixes=(".mlir",), module=f"{__name__}.batches"),),
)
