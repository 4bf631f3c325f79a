"""Picks a verified kernel for each product: ``gemmetry.matmul``, its tables and their evaluation.

``building`` makes a table from experiments, ``choosing`` picks from it, ``evaluation`` replays the
choices; none of them needs a GPU. ``call`` is the function and the operator of torch.
"""

from __future__ import annotations
