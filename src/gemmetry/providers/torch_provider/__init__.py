"""The provider ``torch``:
torch, the baseline of most comparisons. Start at ``provider.py``.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits, TunedFormat

TRAITS = ProviderTraits(
    baseline_rank=0,
    records_traces=True,
    support_targets=("cpu", "cuda-sm_90:0", "hip-gfx942:0"),
    colour=2,
    tuned_formats=(
        TunedFormat(name="tunableop", suffixes=(".csv",), module=f"{__name__}.provider"),
    ),
)
