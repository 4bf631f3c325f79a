"""Classifies by words the kernels that are neither GEMMs of a known grammar nor communication."""

from __future__ import annotations

import re

from gemmetry.kernel_names.kinds import KernelKind, KernelName
from gemmetry.kernel_names.number_formats import number_format
from gemmetry.kernel_names.patterns import pattern
from gemmetry.kernel_names.symbols import Symbol, cut
from gemmetry.kernel_names.words import (
    APPLIED,
    ATTENTION,
    CONVOLUTION,
    DRIVERS,
    FAMILIES,
    FUNCTIONS,
    KV_CACHE,
)

_TRANSFER = pattern(
    r"\A(?:\[CUDA )?mem(?P<memory>cpy|set)"
    r"|\A__amd_rocclr_(?P<rocclr>copy|fill)"
    r"|\ACopy(?:Host|Device)To",
    re.IGNORECASE,
)


def transfer(symbol: Symbol) -> KernelName | None:
    """``Memcpy HtoD (Pinned -> Device)``, ``Memset (Device)``, ``__amd_rocclr_copyBuffer``."""
    found = _TRANSFER.match(symbol.text)
    if not found:
        return None
    is_fill = (found["memory"] or found["rocclr"] or "").lower() in ("set", "fill")
    return KernelName(
        kind=KernelKind.FILL if is_fill else KernelKind.COPY,
        family="rocclr" if found["rocclr"] else "",
        short=cut(symbol.text),
    )


_CONTAINERS = pattern(
    r"(?:device_kernel|Kernel2?|kentry|kentry_kernel|kernel|launch_kernel|global_kernel)\Z"
)
_PYTORCH_CONVOLUTION = pattern(r"conv_depthwise|slow_conv|im2col|col2im|vol2col")
_IGEMM = pattern(r"igemm_[a-z]+_gtcx?\d?_[a-z]+_(?P<format>[a-z]+\d+)_\w{0,20}?bt(\d+)x(\d+)x(\d+)")


def attention_or_convolution(symbol: Symbol) -> KernelName | None:
    """Attention and convolutions, matched before GEMMs: both are built from GEMMs, and their names
    contain the word."""
    lower = symbol.lower
    if _CONTAINERS.search(symbol.base):
        lower = symbol.text[:4096].lower()
    if KV_CACHE.search(lower) and "attention" not in lower and "fmha" not in lower:
        return KernelName(kind=KernelKind.COPY, family=family_of(symbol), short=symbol.short)
    if lower.startswith("at::native::") and not _PYTORCH_CONVOLUTION.search(lower):
        return None
    if ATTENTION.search(lower):
        return KernelName(
            kind=KernelKind.ATTENTION, family=_attention_family(symbol), short=symbol.short
        )
    if not CONVOLUTION.search(lower):
        return None
    igemm = _IGEMM.search(symbol.head)
    return KernelName(
        kind=KernelKind.CONVOLUTION,
        family=family_of(symbol),
        tile=(int(igemm[2]), int(igemm[3]), int(igemm[4])) if igemm else None,
        dtype=number_format(igemm["format"]) if igemm else None,
        short=symbol.short,
    )


def _attention_family(symbol: Symbol) -> str:
    lower = symbol.text[:4096].lower()
    if re.search(r"flash::|flash_(?:fwd|bwd)|flashattn", lower):
        return "flash_attention"
    if "pytorchmemeffattention" in lower or lower.startswith("fmha_cutlass"):
        return "xformers"
    if re.match(r"attn_fwd|bwd_kernel_|bwd_preprocess", lower):
        return "aotriton"
    return family_of(symbol)


def family_of(symbol: Symbol) -> str:
    """The library, by namespace or naming convention."""
    return next((family for family, words in FAMILIES if words.match(symbol.lower)), "")


def by_words(symbol: Symbol) -> KernelName:
    """The kind that the words of the name indicate; ``other`` where they indicate none.

    Functions that apply another function are classified by their first template arguments, and so
    are containers (``ck_tile::kentry``, ``rocprim::...::trampoline_kernel``).
    """
    if DRIVERS.search(symbol.lower):
        kind = _first(APPLIED, symbol.text[:600].lower()) or KernelKind.ELEMENTWISE
    else:
        inside = symbol.text[len(symbol.function) : 1000].lower()
        kind = _first(FUNCTIONS, symbol.lower) or _first(FUNCTIONS[:-1], inside) or KernelKind.OTHER
    return KernelName(kind=kind, family=family_of(symbol), short=symbol.short)


def _first(table: tuple[tuple[KernelKind, re.Pattern[str]], ...], text: str) -> KernelKind | None:
    return next((kind for kind, words in table if words.search(text)), None)
