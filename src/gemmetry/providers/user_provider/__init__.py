"""The provider ``user``:
a user's own kernel, straight from a file. Start at ``provider.py``."""

from gemmetry.providers.user_provider.provider import PROVIDER, UserProvider

__all__ = ["PROVIDER", "UserProvider"]
