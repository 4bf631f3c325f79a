"""Names of GEMM kernels of AMD's libraries: Tensile (rocBLAS, hipBLASLt), Composable Kernel, AITER,
and rocBLAS itself.

Sources: names in real traces; the letters of Tensile's formats from ROCm/hipBLASLt
``tensilelite/Tensile/Common/DataType.py``; the parameters of CK's gridwise GEMMs from
ROCm/composable_kernel ``gridwise_gemm_xdl_cshuffle_v3.hpp``.
"""

from __future__ import annotations

import re

from gemmetry.traces.names.symbols import Symbol, cut
from gemmetry.traces.names.words import (
    KernelKind,
    KernelName,
    format_arguments,
    number_format,
    pattern,
)

_T = r"(?:F8B8N|B8F8N|F8B8|B8F8|F8N|B8N|F8|B8|F6|B6|F4|I8|I64|4xi8|S|D|C|Z|H|I|B|X)"
_TENSILE = pattern(
    r"(?:^|_)(?P<head>Cijk_A(?P<a>il|li|ilC|liC)k\w?_B(?P<b>lj|jl|ljC|jlC)k\w?_"
    rf"(?:(?P<input>{_T})(?:_?(?P<result>{_T})(?P<compute>{_T}))?(?P<xf32>_MX)?_(?:BH|B)"
    rf"|(?P<plain>{_T})(?:(?P<plain_result>{_T})(?P<plain_compute>{_T}))??(?:BH|B)?))"
    r"(?=_|\Z)"
)
_ANY_TENSILE = pattern(r"(?:^|_)(Cijk|Dijk)_")
_MACRO_TILE = pattern(r"_MT(\d+)x(\d+)x(\d+)")
_INSTRUCTION = pattern(r"_MI\d+x\d+x\d+(?:x\d+)?")
_SLICES = pattern(r"_GSU(\d+)(?=_|\Z)")
_POST_SLICES = pattern(r"_PostGSU(\d+)")
_TENSILE_FORMATS = {
    "S": "f32", "D": "f64", "C": "c64", "Z": "c128", "H": "f16", "B": "bf16", "X": "tf32",
    "I": "s32", "I8": "s8", "4xi8": "s8", "I64": "s64", "F8": "e4m3", "B8": "e5m2",
    "F8N": "e4m3fnuz", "B8N": "e5m2fnuz", "F8B8": "e4m3", "B8F8": "e5m2", "F8B8N": "e4m3fnuz",
    "B8F8N": "e5m2fnuz", "F4": "e2m1",
}  # fmt: skip


def tensile(symbol: Symbol) -> KernelName | None:
    """``Cijk_Alik_Bljk_BBS_BH_..._MT128x128x32_MI32x32x8x1_...``, ``Custom_Cijk_...``.

    ``Alik`` lists the contiguous index first: l (k of the product) means that A is transposed,
    ``Bljk`` that B is not. Three letters are the input, result and compute formats. Helper kernels
    have no operands: ``Cijk_..._PostGSU4`` sums slices, ``Cijk_B_GA`` scales C,
    ``Dijk_..._Reduction`` reduces the gradient of a bias.
    """
    name = symbol.text[:2048]
    start = _ANY_TENSILE.search(name[:64])
    if not start:
        return None
    family = "hipblaslt" if "UserArgs" in name or "_Bias" in name or "_SAV" in name else "tensile"
    found = _TENSILE.search(name)
    if not found:
        if start[1] == "Cijk" and "_A" in name and "_B" in name and "_MT" in name:
            return KernelName(kind=KernelKind.GEMM, family=family, short=symbol.short)
        slices = _POST_SLICES.search(name)
        return KernelName(
            kind=KernelKind.REDUCTION if start[1] == "Dijk" else KernelKind.GEMM_REDUCTION,
            family="hipblaslt",
            split_k=int(slices[1]) if slices else None,
            short=symbol.short,
        )
    given = found["input"] or found["plain"]
    compute = found["compute"] or found["plain_compute"]
    result = found["result"] or found["plain_result"] or given
    tile, slices = _MACRO_TILE.search(name), _SLICES.search(name)
    instruction = _INSTRUCTION.search(name)
    shown = (found["head"], tile and tile.group(), instruction and instruction.group())
    return KernelName(
        kind=KernelKind.GEMM,
        family=family,
        tile=(int(tile[1]), int(tile[2]), int(tile[3])) if tile else None,
        layout=("t" if found["a"].startswith("li") else "n")
        + ("t" if found["b"].startswith("jl") else "n"),
        dtype="tf32" if found["xf32"] else _tensile_format(given, name),
        result_dtype=_tensile_format(result, name),
        accumulator=_tensile_accumulator(given, compute, is_high=found["head"].endswith("BH")),
        split_k=int(slices[1]) or None if slices else None,
        short=cut("".join(part for part in shown if part)),
    )


def _tensile_format(letters: str, name: str) -> str | None:
    """gfx942 has only the fnuz variants of fp8, which older names call F8 and B8."""
    found = _TENSILE_FORMATS.get(letters)
    return f"{found}fnuz" if found in ("e4m3", "e5m2") and "_ISA942" in name else found


def _tensile_accumulator(given: str, compute: str | None, *, is_high: bool) -> str | None:
    """The compute format: the last of three letters; for one letter the same format, or f32 with
    high precision (``BH``)."""
    if compute:
        return _TENSILE_FORMATS.get(compute)
    if is_high and given in ("H", "B"):
        return "f32"
    return "s32" if given in ("I8", "4xi8") else _TENSILE_FORMATS.get(given)


_MAJORS = pattern(r"(Row|Column)Major")
_CK_NUMBERS = pattern(r"(?<=, )\(?(?:\([^()]{1,80}\))?(\d{1,6})(?=[,>])")
_CK_TILE_SHAPE = pattern(r"TileGemmShape<(?:ck_tile::)?sequence<(\d{1,5}), ?(\d{1,5}), ?(\d{1,5})>")


def composable_kernel(symbol: Symbol) -> KernelName | None:
    """``ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<RowMajor, ColumnMajor,
    RowMajor, formats ..., block size, M, N, K ...>>`` and ``ck_tile`` GEMMs."""
    text = symbol.text
    if symbol.function.startswith("ck_tile::"):
        words = text.lower()
        if not ("gemm" in words or "flatmm" in words) or "sorting" in words:
            return None
        return _ck_tile_gemm(symbol)
    if not symbol.function.startswith("ck::") or "gemm" not in symbol.lower:
        return None
    formats = format_arguments(text[:3000], bf16_as_ushort=True)
    return KernelName(
        kind=KernelKind.GEMM,
        family="ck",
        tile=_ck_tile(text) if "cshuffle" in text or "MoeGemm" in text else None,
        layout=_ck_layout(text),
        dtype=formats[0] if formats else None,
        accumulator=formats[2] if len(formats) > 3 else None,
        result_dtype=formats[4] if len(formats) > 4 else None,
        short=symbol.short,
    )


def _ck_tile_gemm(symbol: Symbol) -> KernelName:
    """Parameters of ``ck_tile``: the tile in ``TileGemmShape``, and A, B and accumulator in the
    pipeline's problem."""
    text = symbol.text
    shape = _CK_TILE_SHAPE.search(text)
    problem = text.find("PipelineProblem<")
    formats = format_arguments(text[problem : problem + 300], bf16_as_ushort=True)
    spelled: list[str | None] = [None, None, None]
    if problem >= 0 and len(formats) > 2:
        spelled = [*formats[:3]]
    return KernelName(
        kind=KernelKind.GEMM,
        family="ck",
        tile=(int(shape[1]), int(shape[2]), int(shape[3])) if shape else None,
        layout=_ck_layout(text),
        dtype=spelled[0],
        accumulator=spelled[2],
        short=symbol.short,
    )


def _ck_layout(text: str) -> str | None:
    majors = _MAJORS.findall(text)[:2]
    return "".join("t" if m == "Row" else "n" for m in majors) if len(majors) == 2 else None


def _ck_tile(text: str) -> tuple[int, int, int] | None:
    """M, N and K follow the block size; in scaled kernels, the three sizes of a scale's block come
    in between."""
    special = text.find("GemmSpecialization)")
    if special < 0:
        return None
    numbers = [int(n) for n in _CK_NUMBERS.findall(text[special : special + 600])]
    skipped = 4 if "Scale" in text[:special] and numbers[1:2] and numbers[1] <= 2 else 1
    sizes = numbers[skipped : skipped + 3]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None


_AITER_GEMM = pattern(
    r"(?:^|_|::)(?P<input>bf16|f16|fp16|fp8|f8|i8|int8|f4|fp4)gemm_(?:(?P<result>[a-z]+\d+?)_)?"
)
_AITER_FMOE = pattern(r"(?:^|_|::)fmoe_")
_AITER_TILE = pattern(r"_(\d{1,4})x(\d{1,4})(?=_|\Z)")


def aiter(symbol: Symbol) -> KernelName | None:
    """Assembly kernels of AITER: ``aiter::bf16gemm_fp32bf16_tn_96x64_pf3_splitk``,
    ``fp8gemm_bf16_blockscale_BpreShuffle_80x128``, and its fused mixtures of experts ``fmoe_``."""
    base = symbol.base
    if "gemm_" not in base and "fmoe_" not in base:
        return None
    found = _AITER_GEMM.search(base)
    if not found and not _AITER_FMOE.search(base):
        return None
    tile = _AITER_TILE.search(base)
    layout = re.search(r"_([nt]{2})_", base)
    return KernelName(
        kind=KernelKind.GEMM,
        family="aiter",
        tile=(int(tile[1]), int(tile[2]), 0) if tile else None,
        layout=layout[1] if layout else None,
        dtype=number_format(found["input"]) if found else _fmoe_format(base),
        result_dtype=number_format(found["result"]) if found and found["result"] else None,
        short=symbol.short,
    )


def _fmoe_format(base: str) -> str | None:
    found = re.search(r"(?i)(fp8|int8|fp4)", base)
    if found:
        return number_format(found[1])
    return "bf16" if "_bf16" in base else None


def rocblas(symbol: Symbol) -> KernelName | None:
    """rocBLAS's own kernels: ``rocblas_gemvt_kernel<...>``, ``rocblas_gemm_batched_kernel``."""
    if "rocblas" not in symbol.lower:
        return None
    formats = format_arguments(symbol.text[len(symbol.function) : 600])
    for words, kind in (
        ("gemv|dot", KernelKind.GEMV),
        ("gemm_scale|scal", KernelKind.GEMM_REDUCTION),
        ("gemm|trmm|syrk|symm", KernelKind.GEMM),
    ):
        if re.search(words, symbol.base):
            return KernelName(
                kind=kind,
                family="rocblas",
                dtype=formats[0] if formats else None,
                short=symbol.short,
            )
    return None
