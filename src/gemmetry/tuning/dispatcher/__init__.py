"""Picks a verified kernel for each product: ``gemmetry.matmul``, its tables and their evaluation.

``building`` makes a table, ``choosing`` picks from it, ``evaluation`` judges the choices.
``runtime`` launches the chosen kernels and times candidates, and ``call`` is the function and the
operator of torch.
"""

from __future__ import annotations
