"""The provider ``torch``:
torch, the baseline of most comparisons. Start at ``provider.py``."""

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(baseline_rank=0, records_traces=True, colour=2)
