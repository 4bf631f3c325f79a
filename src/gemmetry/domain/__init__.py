"""L0: the nouns of gemmetry as frozen dataclasses; operation names and their inverse.

May import the standard library only. Start at ``operation.py``, then ``contracts.py``.
"""
