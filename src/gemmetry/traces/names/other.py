"""GEMM kernels of DeepGEMM, TensorRT-LLM, Triton and others.

Sources: names in real traces; parameters of DeepGEMM's kernels from deepseek-ai/DeepGEMM
``deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh``.
"""

from __future__ import annotations

import re

from gemmetry.traces.names.symbols import Symbol, cut
from gemmetry.traces.names.words import KernelKind, KernelName, number_format, pattern

_UNSIGNED = pattern(r"(?<=[<, ])(\d{1,7})u?(?=[,>])")
_DEEP_FORMAT = pattern(r"sm\d+_([a-z]+\d+)_")
_DEEP_TILED = pattern(r"sm90_\w{1,60}_impl\Z")
_MULTICAST = pattern(r"[ ,](\d{1,2})u?, ?(true|false),")
_SWIZZLES = (0, 16, 32, 64, 128)


def deep_gemm(symbol: Symbol) -> KernelName | None:
    """``deep_gemm::sm90_fp8_gemm_1d2d_impl<..., shape M, N, K, groups, tile M, N, K, ...>``."""
    if not symbol.function.startswith("deep_gemm::") or "gemm" not in symbol.base:
        return None
    given = _DEEP_FORMAT.search(symbol.base)
    # In newer kernels the first argument is an enumerator: ``(cute::UMMA::Major)0``.
    arguments = re.sub(r"\([\w:]{1,60}\)\d+,", "", symbol.text[len(symbol.function) : 400])
    numbers = [int(n) for n in _UNSIGNED.findall(arguments)]
    # Kernels for sm_100 have other parameters, which change from version to version.
    has_tile = bool(_DEEP_TILED.match(symbol.base)) and len(numbers) > 6
    # The tile is followed by one to three swizzles, in bytes, and then the stages.
    stages = next((n for n in numbers[7:] if n not in _SWIZZLES), None) if has_tile else None
    multicast = _MULTICAST.search(arguments) if has_tile else None
    return KernelName(
        kind=KernelKind.GEMM,
        family="deep_gemm",
        tile=(numbers[4], numbers[5], numbers[6]) if has_tile else None,
        stages=stages,
        cluster=_cluster(int(multicast[1]), of_a=multicast[2] == "true") if multicast else None,
        dtype=number_format(given[1]) if given else "e4m3" if "fp8" in symbol.base else None,
        accumulator="f32",
        short=symbol.short,
    )


def _cluster(blocks: int, *, of_a: bool) -> tuple[int, int]:
    """Blocks that share a tile of A are neighbours along N; those that share a tile of B, along
    M."""
    return (1, blocks) if of_a else (blocks, 1)


_TRTLLM = pattern(
    r"\A(?:bmm|gemm|batchedGemm)_(?P<d>[A-Z][a-z0-9]+)_(?P<a>[A-Z][A-Za-z]*?\d+(?:m\d+)?)"
    r"(?P<b>[A-Z][a-z0-9]+)?_(?P<acc>[A-Z][a-z]+\d+)_"
)
_TRTLLM_TILE = pattern(r"_t(\d+)x(\d+)x(\d+)(?:u\d+)?_s(\d+)")
_TRTLLM_CLUSTER = pattern(r"_(?:c|cga)(\d+)x(\d+)x\d+_")
_TRTLLM_LAYOUT = pattern(r"_r[MN]_([TN]{2})_")


def trtllm(symbol: Symbol) -> KernelName | None:
    """``bmm_Bfloat16_E2m1E2m1_Fp32_..._t128x64x128u2_s6_et64x64_..._c1x1x1_rM_TN_...``."""
    name = symbol.head
    found = _TRTLLM.match(name) if name.startswith(("bmm_", "gemm_", "batchedGemm_")) else None
    if not found:
        return None
    tile, cluster = _TRTLLM_TILE.search(name), _TRTLLM_CLUSTER.search(name)
    layout = _TRTLLM_LAYOUT.search(name)
    return KernelName(
        kind=KernelKind.GEMM,
        family="trtllm",
        tile=(int(tile[1]), int(tile[2]), int(tile[3])) if tile else None,
        stages=int(tile[4]) if tile else None,
        cluster=(int(cluster[1]), int(cluster[2])) if cluster else None,
        layout=layout[1].lower() if layout else None,
        dtype=number_format(found["a"]),
        result_dtype=number_format(found["d"]),
        accumulator=number_format(found["acc"]),
        short=cut(symbol.function.partition("_et")[0]),
    )


_WEIGHT_ONLY_INPUT = pattern(r"weight_only::(FP16|BF16)DetailsA")


def trtllm_weight_only(symbol: Symbol) -> KernelName | None:
    """``tensorrt_llm::kernels::weight_only::kernel<...KernelDetails<...FP16DetailsA,
    ...Int4DetailsW, ...>, ...>``: up to 16 rows by weights of 4 or 8 bits."""
    if not symbol.function.endswith("weight_only::kernel"):
        return None
    given = _WEIGHT_ONLY_INPUT.search(symbol.text[:2000])
    return KernelName(
        kind=KernelKind.GEMM,
        family="trtllm",
        dtype=number_format(given[1].lower()) if given else None,
        short="weight_only::kernel",
    )


_KITTENS = (
    (KernelKind.ATTENTION, pattern(r"(?i)attn|attend|mha|mla_")),
    (KernelKind.CONVOLUTION, pattern(r"(?i)conv")),
    (KernelKind.GEMM, pattern(r"(?i)matmul|gemm|gmm")),
)
_KITTENS_GEMM = pattern(
    r"\Akernel\W(?:.{0,200}\W)?\w{0,60}(?:matmul|gemm)\w{0,60}(?:_|::)globals\b"
)


def thunder_kittens(symbol: Symbol) -> KernelName | None:
    """``kittens::prototype::lcf::kernel<matmul_template<2, 4, 8>>`` of ThunderKittens, whose
    frameworks name the template that they run, and its kernels without a framework,
    ``kernel(matmul_globals)``."""
    if _KITTENS_GEMM.match(symbol.text[:600]):
        return KernelName(kind=KernelKind.GEMM, family="thunderkittens", short=symbol.short)
    if not symbol.function.startswith("kittens::"):
        return None
    template = symbol.text[len(symbol.function) : 400]
    for kind, words in _KITTENS:
        if words.search(template):
            return KernelName(kind=kind, family="thunderkittens", short=symbol.short)
    return None


_INDUCTOR = pattern(r"\Atriton_(poi|red|per|tem|for|mm|bmm|spl|unk)(?:_|\Z)")
_INDUCTOR_GEMM = pattern(r"(?:^|_)(?:mm|bmm|addmm|baddbmm|matmul|gemm|dot|linear)(?:_|\Z)")
_INDUCTOR_NORM = pattern(r"(?:layer|batch|group|rms)_norm|mean.*rsqrt|rsqrt.*mean|var_mean")
_INDUCTOR_COPY = pattern(r"\A(?:clone|cat|copy|permute|transpose|t|view|_to|stack|slice|\d|_)+\Z")
_POINTWISE = ("poi", "for", "unk")


def inductor(symbol: Symbol) -> KernelName | None:
    """Kernels generated by torch.compile: ``triton_poi_`` pointwise, ``triton_red_`` and
    ``triton_per_`` reductions, ``triton_tem_`` and ``triton_mm`` templates. A pointwise kernel
    whose name contains ``addmm`` computes the bias, not the product."""
    found = _INDUCTOR.match(symbol.head)
    if not found:
        return None
    sort, rest = found[1], symbol.head[found.end() :].removeprefix("fused_")
    if sort in ("tem", "mm", "bmm"):
        if "attention" in rest or "sdpa" in rest:
            kind = KernelKind.ATTENTION
        elif "conv" in rest and not _INDUCTOR_GEMM.search(rest):
            kind = KernelKind.CONVOLUTION
        else:
            kind = KernelKind.GEMM
    elif sort in _POINTWISE:
        kind = KernelKind.COPY if _INDUCTOR_COPY.match(rest[:200]) else KernelKind.ELEMENTWISE
    elif "softmax" in rest:
        kind = KernelKind.SOFTMAX
    elif _INDUCTOR_NORM.search(rest[:500]):
        kind = KernelKind.NORMALISATION
    else:
        kind = KernelKind.REDUCTION
    return KernelName(kind=kind, family="triton", short=symbol.short)


_OGS = pattern(
    r"matmul_ogs_[NT]{3}_(?P<d>[a-z0-9]{1,12}?)x(?P<a>[a-z0-9]{1,12}?)x(?P<b>[a-z0-9]{1,12})"
    r"_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x(?P<slices>\d+)"
)
_BLOCKS = pattern(r"(?i)BLOCK_?(?:SIZE_?)?([MNK])_?(\d{1,5})")
_WORDS = pattern(
    r"(?i)gemm|gemv|matmul|(?:^|_)b?mm(?:_|\Z)|(?:^|_)fused_moe_kernel|marlin(?!.*repack)"
    r"|mfma_moe|wvsplitk|wv_splitk|mul_mat|(?:^|_)mmq|exllama|ffma_|hgemm|tinygemm"
)
_NO_GEMM = pattern(
    r"(?i)fbgemm|repack|quantize(?!_mul_mat)|transform|gemm_?(?:permute|gather|scatter)|sort|align"
    r"|topk|prepare|gemm_(?:starts|pointers|args|data|offsets|sizes)"
)
_UNPACKS = pattern(r"(?i)dequant|reconstruct")
_LIBRARY_WORDS = pattern(r"(?i)marlin|exllama|tinygemm|(?:^|_)mmq")
"""Library names that also appear in kernels which only unpack weights."""
_FINALIZES = pattern(r"_finalize_matmul")
"""Sums the results of a token's experts, and with them slices of k, in Triton's ``matmul_ogs``: its
time grows with the number of experts per token, not with k."""
_TRITON = ("_", "matmul_kernel", "fused_moe_kernel", "gemm_fusion_dot")
_REDUCES = pattern(r"(?i)reduce|split_?k_?(?:sum|combine)")


def any_gemm(symbol: Symbol) -> KernelName | None:
    """Kernels with GEMM, matmul or gemv in their names that belong to none of the known
    families."""
    base = symbol.base
    if not _WORDS.search(base[:400]):
        return None
    if symbol.function.startswith("at::native::") and "gemm" not in base.lower():
        return None
    if _NO_GEMM.search(base[:400]):
        return None
    if _FINALIZES.match(base):
        return KernelName(kind=KernelKind.REDUCTION, family="triton", short=symbol.short)
    if _UNPACKS.search(base[:400]) and not _WORDS.search(_LIBRARY_WORDS.sub("", base[:400])):
        return None
    kind = KernelKind.GEMM
    if re.search(r"(?i)gemv|mul_mat_vec", base):
        kind = KernelKind.GEMV
    elif _REDUCES.search(base) and "gemm" in base.lower():
        kind = KernelKind.GEMM_REDUCTION
    ogs = _OGS.search(base)
    blocks = {letter.upper(): int(size) for letter, size in _BLOCKS.findall(base[:400])}
    tile = None
    if ogs:
        tile = (int(ogs["m"]), int(ogs["n"]), int(ogs["k"]))
    elif {"M", "N"} <= blocks.keys():
        tile = (blocks["M"], blocks["N"], blocks.get("K", 0))
    is_triton = bool(ogs or blocks) or base.startswith(_TRITON)
    return KernelName(
        kind=kind,
        family="iree" if "_dispatch_" in base else "triton" if is_triton else "",
        tile=tile,
        dtype=number_format(ogs["a"]) if ogs else None,
        result_dtype=number_format(ogs["d"]) if ogs else None,
        split_k=int(ogs["slices"]) if ogs else None,
        short=symbol.short,
    )
