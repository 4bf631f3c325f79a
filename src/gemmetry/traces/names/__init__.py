"""Classifies GPU kernels by name. Works on text only: no files, no devices, no other layers.

``docs/kernel-names.md`` lists the families and defines what counts as a GEMM.
"""

from __future__ import annotations

from gemmetry.traces.names.classify import classify, is_communication, is_gemm
from gemmetry.traces.names.words import GEMM_KINDS, KernelKind, KernelName

__all__ = [
    "GEMM_KINDS",
    "KernelKind",
    "KernelName",
    "classify",
    "is_communication",
    "is_gemm",
]
