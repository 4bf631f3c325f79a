"""The nouns of gemmetry as frozen dataclasses; operation names and their inverse.

Start at ``operation.py``, then ``dispatch.py``.
"""

from __future__ import annotations
