"""Names that cuBLAS, cuBLASLt, cuDNN and the CUTLASS library generate: they encode the tile, the
pipeline, the layout and the formats in words between underscores.

Sources: names in real traces, and for CUTLASS its naming scheme
(``python/cutlass_library/gemm_operation.py``, ``conv2d_operation.py`` of NVIDIA/cutlass).
"""

from __future__ import annotations

import re

from gemmetry.kernel_names.kinds import KernelKind, KernelName
from gemmetry.kernel_names.number_formats import format_arguments, number_format
from gemmetry.kernel_names.patterns import pattern
from gemmetry.kernel_names.symbols import Symbol, cut

_NVJET = pattern(
    r"nvjet_(?:sm(?P<sm>\d+)_)?(?P<letters>[a-z]{3,7})_(?:mma_)?"
    r"(?P<m>\d+)x(?P<n>\d+)(?:x(?P<k>\d+)_(?P<stages>\d+)|_(?P<k2>\d+)x(?P<stages2>\d+))"
    r"(?:_(?P<c1>\d+)x(?P<c2>\d+)(?![x\d]))?"
)
_NVJET_LETTERS = {
    "t": "bf16", "h": "f16", "s": "f32", "d": "f64", "q": "e4m3", "r": "e5m2", "o": "e2m1",
    "i": "s32",
}  # fmt: skip
_NVJET_LAYOUT = pattern(r"_([NT]{2})[NT]{1,2}(?:_|\Z)")

_LAYOUT = pattern(r"_([nt]{2})[nt]?(?=_|\Z|::)")

_XMMA = pattern(
    r"sm\d+_xmma_(?P<op>[a-z0-9]{1,12})_(?:[a-z_]{0,40}_)??"
    r"(?P<formats>(?:[a-z]{1,3}\d{1,2}){2,3}_(?:[a-z]{1,3}\d{1,2}){2,3}_[a-z]{1,3}\d{1,2})_"
    r"(?:(?P<layout>[nt]{2})_[nt]_)?"
)
_FORMAT = pattern(r"(?:tf|bf|cf|f|i|u|e\dm)\d+")
_TILESIZE = pattern(r"_tilesize(\d+)x(\d+)x(\d+)")
_STAGE = pattern(r"_stage(\d+)")
_CGA = pattern(r"_(?:cga|cluster)size(\d+)x(\d+)")
_SLICES = pattern(r"_split_?[kK](\d+)")

_LEGACY = pattern(
    r"(?:^|_)(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_"
    r"(?:(?P<result>[a-z]+\d+)_)?(?P<letter>g?[a-z])(?P<mma>\d*)(?P<library>gemm|cudnn)_"
    r"(?:(?P<input>[a-z]+\d+)_)?(?P<m>\d+)x(?P<n>\d+)(?P<rest>\w*)"
)
_STAGES = pattern(r"_stages_(\d+)x(\d+)")

_CUTLASS2 = pattern(
    r"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_"
    r"(?:(?P<result>[a-z]+\d+)_)?(?P<letter>g?[a-z])(?P<mma>\d*)"
    r"(?P<op>gemm|fprop|dgrad|wgrad|[a-z]+)_?(?P<rest>\w*)"
)
_CUTLASS2_TILE = pattern(r"(?:\A|_)(\d+)x(\d+)(?:_(\d+)x(\d+))?(?=_|\Z)")
_CUTLASS2_INPUT = pattern(r"(?:\A|_)([a-z]+\d+)_(?=\d+x)")

_CUTLASS3 = pattern(
    r"cutlass3x_sm\d+_(?:sp)?(?:bs)?(?:tensorop|simt)_[a-z]*[\dx]*(?P<op>gemm|[a-z]+)_"
    r"(?P<scaled>block_scaled_)?"
    r"(?P<a>[a-z][a-z0-9]*)_(?P<b>[a-z][a-z0-9]*)_(?P<acc>[a-z]+\d+)_(?:[a-z][a-z0-9]*)_"
    r"(?P<d>[a-z][a-z0-9]*)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_"
    r"(?:(?P<c1>\d+)x(?P<c2>\d+)x\d+_)?(?P<stages>\d+)_(?P<layout>[nt]{2})"
)

_LETTERS = {
    "s": "f32", "h": "f16", "d": "f64", "i": "s32", "c": "c64", "z": "c128", "gc": "c64",
    "gz": "c128",
}  # fmt: skip
_CONVOLUTIONS = ("fprop", "dgrad", "wgrad")


def nvjet(symbol: Symbol) -> KernelName | None:
    """``nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT`` of cuBLASLt.

    The letters stand for A (and B), compute and D, five of them for A, B, C, compute and D; what
    follows is tile, k x stages and cluster. Letters by names seen with inputs of known format.
    """
    name = symbol.head
    if "nvjet" not in name:
        return None
    found = _NVJET.search(name)
    if not found:
        return KernelName(kind=KernelKind.GEMM, family="nvjet", short=symbol.short)
    letters = found["letters"]
    layout = _NVJET_LAYOUT.search(name, found.end())
    k = found["k"] or found["k2"]
    return KernelName(
        kind=KernelKind.GEMM,
        family="nvjet",
        tile=(int(found["m"]), int(found["n"]), int(k)),
        stages=int(found["stages"] or found["stages2"]),
        cluster=(int(found["c1"]), int(found["c2"])) if found["c1"] else None,
        layout=layout.group(1).lower() if layout else None,
        dtype=_NVJET_LETTERS.get(letters[0]),
        result_dtype=_NVJET_LETTERS.get(letters[-1]),
        accumulator=_NVJET_LETTERS.get(letters[-2]),
        short=symbol.short,
    )


def xmma(symbol: Symbol) -> KernelName | None:
    """``sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_...``.

    The formats are those of input and result, of the multiplication and its accumulator, and of
    the epilogue.
    """
    name = symbol.head
    if "_xmma_" not in name:
        return None
    found = _XMMA.search(name)
    kind = KernelKind.GEMM
    if found and found["op"] in (*_CONVOLUTIONS, "conv"):
        kind = KernelKind.CONVOLUTION
    groups = [_FORMAT.findall(part) for part in found["formats"].split("_")] if found else []
    stored, multiplied = groups[:2] if len(groups) == 3 else ([], [])
    tile, stages, cluster = _TILESIZE.search(name), _STAGE.search(name), _CGA.search(name)
    slices = _SLICES.search(name)
    return KernelName(
        kind=kind,
        family="xmma",
        tile=(int(tile[1]), int(tile[2]), int(tile[3])) if tile else None,
        stages=int(stages[1]) if stages else None,
        cluster=(int(cluster[1]), int(cluster[2])) if cluster else None,
        layout=found["layout"] if found else None,
        dtype=number_format(multiplied[0]) if multiplied else None,
        result_dtype=number_format(stored[-1]) if stored else None,
        accumulator=number_format(multiplied[-1]) if multiplied else None,
        split_k=int(slices[1]) if slices else None,
        short=cut(symbol.function.partition("_execute")[0]),
    )


def legacy_cublas(symbol: Symbol) -> KernelName | None:
    """``ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn``, ``volta_sgemm_128x64_nn``."""
    return _legacy(symbol, "gemm")


def legacy_cudnn(symbol: Symbol) -> KernelName | None:
    """``volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1``: cuDNN's
    convolutions in the same words."""
    return _legacy(symbol, "cudnn")


def _legacy(symbol: Symbol, library: str) -> KernelName | None:
    found = _LEGACY.search(symbol.head) if f"{library}_" in symbol.head else None
    if not found or found["library"] != library:
        return None
    is_convolution = library == "cudnn"
    accumulator = _LETTERS.get(found["letter"])
    stages, layout = _STAGES.search(found["rest"]), _LAYOUT.search(found["rest"])
    slices = _SLICES.search(found["rest"])
    return KernelName(
        kind=KernelKind.CONVOLUTION if is_convolution else KernelKind.GEMM,
        family="cudnn" if is_convolution else "cublas",
        tile=(int(found["m"]), int(found["n"]), int(stages[1]) if stages else 0),
        stages=int(stages[2]) if stages else None,
        layout=layout[1] if layout and not is_convolution else None,
        dtype=_input_format(found["input"], found["letter"], found["mma"]),
        result_dtype=number_format(found["result"]) if found["result"] else accumulator,
        accumulator=accumulator,
        split_k=int(slices[1]) if slices else None,
        short=symbol.short,
    )


def cutlass_library(symbol: Symbol) -> KernelName | None:
    """``cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8`` and
    ``cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_...``,
    alone or as the argument of ``cutlass::Kernel``."""
    if "cutlass3x_" in symbol.head:
        return _cutlass3_library(symbol)
    found = _CUTLASS2.search(symbol.head)
    if not found:
        return None
    rest = found["rest"]
    tile, layout, slices = _CUTLASS2_TILE.search(rest), _LAYOUT.search(rest), _SLICES.search(rest)
    given = _CUTLASS2_INPUT.search(rest)
    is_convolution = found["op"] in _CONVOLUTIONS
    accumulator = _LETTERS.get(found["letter"])
    return KernelName(
        kind=KernelKind.CONVOLUTION if is_convolution else KernelKind.GEMM,
        family="cudnn" if "cudnn" in symbol.function else "cutlass2",
        tile=(int(tile[1]), int(tile[2]), int(tile[3] or 0)) if tile else None,
        stages=int(tile[4]) if tile and tile[4] else None,
        layout=layout[1] if layout and not is_convolution else None,
        dtype=_input_format(given[1] if given else None, found["letter"], found["mma"]),
        result_dtype=number_format(found["result"]) if found["result"] else accumulator,
        accumulator=accumulator,
        split_k=int(slices[1]) if slices else None,
        short=cut(found.group().partition("::")[0]),
    )


def _cutlass3_library(symbol: Symbol) -> KernelName:
    name = symbol.head[symbol.head.index("cutlass3x_") :]
    found = _CUTLASS3.match(name)
    short = cut(re.split(r"[^\w]", name, maxsplit=1)[0])
    if not found:
        return KernelName(kind=KernelKind.GEMM, family="cutlass3", short=short)
    is_convolution = found["op"] in _CONVOLUTIONS
    return KernelName(
        kind=KernelKind.CONVOLUTION if is_convolution else KernelKind.GEMM,
        family="cutlass3",
        tile=(int(found["m"]), int(found["n"]), int(found["k"])),
        stages=int(found["stages"]) or None,
        cluster=(int(found["c1"]), int(found["c2"])) if found["c1"] else None,
        layout=found["layout"],
        dtype=number_format(found["a"].rpartition("x")[2]),
        result_dtype=number_format(found["d"]),
        accumulator=number_format(found["acc"]),
        short=short,
    )


_CUBLAS_FUNCTIONS = pattern(
    r"\A(?:gemm(?:SN|k1|E\d|_kernel\d)|gemv(?:2[NT]|NSP|x)|(?:magma_)?[sdcz]gemm_?(?:Ex_|largek|\d))"
    r"|\Asplit_?[kK]_?[rR]educe"
)
_CUBLAS_WORDS = pattern(r"\A(?:dot_kernel|reduce_1Block_kernel)\Z|gem[mv]")
_SMALL_LAYOUT = pattern(r"gemmSN_([NT]{2})")
_DOT_OPERAND = pattern(r"cublasGemvTensor\w*<([\w:]+)")


def cublas_functions(symbol: Symbol) -> KernelName | None:
    """cuBLAS kernels that are C++ templates: ``gemv2T_kernel_val<int, int, float ...>``,
    ``gemmSN_NN_kernel<float ...>``, ``dot_kernel``, ``splitKreduce_kernel`` ..."""
    base = symbol.base if "gemvx::" not in symbol.function else "gemvx"
    if not _CUBLAS_FUNCTIONS.search(base) and not (
        _CUBLAS_WORDS.search(base) and "cublas" in symbol.text
    ):
        return None
    family = "cublaslt" if symbol.function.startswith("cublasLt::") else "cublas"
    if "educe" in base:
        return KernelName(kind=KernelKind.GEMM_REDUCTION, family=family, short=symbol.short)
    if base == "dot_kernel":
        operand = _DOT_OPERAND.search(symbol.text)
        dtype = number_format(operand[1]) if operand else None
        return KernelName(kind=KernelKind.GEMV, family=family, dtype=dtype, short=symbol.short)
    formats = format_arguments(symbol.text[len(symbol.function) : 600])
    layout = _SMALL_LAYOUT.search(base)
    is_gemv = "gemv" in base
    return KernelName(
        kind=KernelKind.GEMV if is_gemv else KernelKind.GEMM,
        family=family,
        layout=layout[1].lower() if layout else None,
        dtype=formats[0] if formats else None,
        result_dtype=formats[2] if is_gemv and len(formats) > 3 else None,
        accumulator=formats[3] if is_gemv and len(formats) > 3 else None,
        short=symbol.short,
    )


def _input_format(given: str | None, letter: str, mma: str) -> str | None:
    """Format of the inputs; f32 inputs on tensor cores (a shape of an mma is told, and no other
    format) are multiplied as TF32."""
    if given:
        return number_format(given)
    if letter == "s" and mma:
        return "tf32"
    return _LETTERS.get(letter)
