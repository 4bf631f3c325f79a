"""The provider ``torch``:
torch, the baseline of most comparisons. Start at ``provider.py``."""

from gemmetry.providers.torch_provider.provider import PROVIDER, TorchProvider

__all__ = ["PROVIDER", "TorchProvider"]
