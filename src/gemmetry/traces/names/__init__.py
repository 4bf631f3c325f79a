"""Classifies GPU kernels by name. Works on text only: no files, no devices, no other layers.

``docs/kernel-names.md`` lists the families and defines what counts as a GEMM.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from gemmetry.traces.names.grammars import GRAMMARS, by_words
from gemmetry.traces.names.symbols import MOST_CHARACTERS, SHORT_CHARACTERS, read_symbol, settled
from gemmetry.traces.names.words import GEMM_KINDS, KernelKind, KernelName

__all__ = ["GEMM_KINDS", "KernelKind", "KernelName", "classify", "is_communication", "is_gemm"]

CACHED_NAMES = 16384
"""A trace has a few hundred distinct names, a complete catalogue of GEMM kernels about ten
thousand."""


def classify(name: str) -> KernelName:
    """The facts that `name` encodes. Any text is accepted; nothing is raised, and the time is
    bounded: only the first ``MOST_CHARACTERS`` are read."""
    return _classify(name[:MOST_CHARACTERS])


@lru_cache(maxsize=CACHED_NAMES)
def _classify(name: str) -> KernelName:
    symbol = read_symbol(name)
    facts = _by_grammar(name) or by_words(symbol)
    is_short = symbol.text == symbol.function and len(symbol.text) <= SHORT_CHARACTERS
    return dataclasses.replace(facts, short=settled(symbol.short if is_short else facts.short))


@lru_cache(maxsize=CACHED_NAMES)
def _by_grammar(name: str) -> KernelName | None:
    """Name by a grammar; None where only the words classify it: such kernels are neither GEMMs nor
    communication."""
    symbol = read_symbol(name)
    return next((found for rule in GRAMMARS if (found := rule(symbol))), None)


def _kind_by_grammar(name: str) -> KernelKind | None:
    facts = _by_grammar(name[:MOST_CHARACTERS])
    return facts.kind if facts else None


def is_gemm(name: str) -> bool:
    """Whether the time of kernels of this name is GEMM time: GEMMs, matrix by vector, and the
    helper passes of split-k. Attention and convolutions do not count, although they are built from
    GEMMs."""
    return _kind_by_grammar(name) in GEMM_KINDS


def is_communication(name: str) -> bool:
    """Whether kernels of this name communicate between GPUs."""
    return _kind_by_grammar(name) is KernelKind.COLLECTIVE
