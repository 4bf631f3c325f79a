"""The grammars of kernel names, by library: each returns the facts of the names that it knows.

Sources: names in real traces, and

- NVIDIA: CUTLASS' naming scheme (``python/cutlass_library/gemm_operation.py``,
  ``conv2d_operation.py``) and the parameters of ``cutlass::gemm::collective::CollectiveMma``
  (policy with stages and cluster, tile, A, stride of A, B ...; in CUTLASS 2 the first ``GemmShape``
  is the tile of a block);
- AMD: the letters of Tensile's formats from ROCm/hipBLASLt
  ``tensilelite/Tensile/Common/DataType.py``; the parameters of CK's gridwise GEMMs from
  ROCm/composable_kernel ``gridwise_gemm_xdl_cshuffle_v3.hpp``;
- DeepGEMM: deepseek-ai/DeepGEMM ``deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh``;
- communication: NVIDIA/nccl ``src/device/generate.py`` (names since 2.18),
  ``src/device/symmetric/generate.py`` (2.27) and ``src/collectives/device/common.h`` (before);
  deepseek-ai/DeepEP ``csrc/kernels``; NVIDIA/nvshmem ``src/host/stream/coll``; microsoft/mscclpp
  ``apps/nccl/src``; PyTorch ``CUDASymmetricMemoryOps.cu``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from gemmetry.traces.names.symbols import HEAD_CHARACTERS, Symbol, cut
from gemmetry.traces.names.words import (
    APPLIED,
    ATTENTION,
    CONVOLUTION,
    DRIVERS,
    FAMILIES,
    FUNCTIONS,
    KV_CACHE,
    KernelKind,
    KernelName,
    format_arguments,
    number_format,
    pattern,
)

_GEMM, _COMMUNICATES = KernelKind.GEMM, KernelKind.COLLECTIVE
_Fact = TypeVar("_Fact", bound=str)


def _facts(
    symbol: Symbol, kind: KernelKind, family: str, *found: re.Match[str] | None, **known: Any
) -> KernelName:
    """The facts in the groups of the matches `found`, and those that are `known`.

    Groups: ``m``, ``n``, ``k`` of the tile, ``stages``, ``c1`` and ``c2`` of the cluster,
    ``layout``, ``split_k``, and the formats ``dtype``, ``result`` and ``acc``.
    """
    given = {key: text for one in found if one for key, text in one.groupdict().items() if text}
    sizes = {key: int(given[key]) for key in ("m", "n", "k", "c1", "c2") if key in given}
    read: dict[str, Any] = {"short": symbol.short}
    if "m" in sizes:
        read["tile"] = (sizes["m"], sizes["n"], sizes.get("k", 0))
    if "c1" in sizes:
        read["cluster"] = (sizes["c1"], sizes["c2"])
    if "layout" in given:
        read["layout"] = given["layout"].lower()
    read |= {key: int(given[key]) or None for key in ("stages", "split_k") if key in given}
    for key, fact in (("dtype", "dtype"), ("result", "result_dtype"), ("acc", "accumulator")):
        if key in given:
            read[fact] = number_format(given[key])
    return KernelName(kind=kind, family=family, **read | known)


def _first(formats: list[str], place: int = 0) -> str | None:
    return formats[place] if len(formats) > place else None


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
    kind = KernelKind.FILL if is_fill else KernelKind.COPY
    return _facts(symbol, kind, "rocclr" if found["rocclr"] else "", short=cut(symbol.text))


_T = r"(?:F8B8N|B8F8N|F8B8|B8F8|F8N|B8N|F8|B8|F6|B6|F4|I8|I64|4xi8|S|D|C|Z|H|I|B|X)"
_TENSILE = pattern(
    r"(?:^|_)(?P<head>Cijk_A(?P<a>il|li|ilC|liC)k\w?_B(?P<b>lj|jl|ljC|jlC)k\w?_"
    rf"(?:(?P<input>{_T})(?:_?(?P<out>{_T})(?P<compute>{_T}))?(?P<xf32>_MX)?_(?:BH|B)"
    rf"|(?P<plain>{_T})(?:(?P<plain_out>{_T})(?P<plain_compute>{_T}))??(?:BH|B)?))"
    r"(?=_|\Z)"
)
_ANY_TENSILE = pattern(r"(?:^|_)(Cijk|Dijk)_")
_MACRO_TILE = pattern(r"_MT(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)")
_INSTRUCTION = pattern(r"_MI\d+x\d+x\d+(?:x\d+)?")
_TENSILE_SLICES = pattern(r"_GSU(?P<split_k>\d+)(?=_|\Z)")
_POST_SLICES = pattern(r"_PostGSU(?P<split_k>\d+)")
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
            return _facts(symbol, _GEMM, family)
        kind = KernelKind.REDUCTION if start[1] == "Dijk" else KernelKind.GEMM_REDUCTION
        return _facts(symbol, kind, "hipblaslt", _POST_SLICES.search(name))
    given = found["input"] or found["plain"]
    compute = found["compute"] or found["plain_compute"]
    tile, instruction = _MACRO_TILE.search(name), _INSTRUCTION.search(name)
    shown = (found["head"], tile and tile.group(), instruction and instruction.group())
    layout = ("t" if found["a"].startswith("li") else "n") + (
        "t" if found["b"].startswith("jl") else "n"
    )
    return _facts(
        symbol, _GEMM, family, tile, _TENSILE_SLICES.search(name), layout=layout,
        dtype="tf32" if found["xf32"] else _tensile_format(given, name),
        result_dtype=_tensile_format(found["out"] or found["plain_out"] or given, name),
        accumulator=_tensile_accumulator(given, compute, is_high=found["head"].endswith("BH")),
        short=cut("".join(part for part in shown if part)),
    )  # fmt: skip


def _tensile_format(letters: str, name: str) -> str | None:
    """Format of the letters. gfx942 only has fnuz variants of fp8, F8 and B8 in older names."""
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


OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "alltoallv": "all_to_all",
    "alltoallpivot": "all_to_all", "broadcast": "broadcast", "reduce": "reduce",
    "gather": "gather", "scatter": "scatter", "sendrecv": "send_recv",
}  # fmt: skip
_REDUCING = ("all_reduce", "reduce_scatter", "reduce")

_NCCL = pattern(
    r"nccl(?P<symmetric>Symk?)?(?:Dev)?Kernel(?:Debug)?_(?P<operation>[A-Za-z]+)(?P<rest>\w*)"
)
_NCCL_2_6 = pattern(
    r"nccl(?P<operation>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll)"
    r"(?P<algorithm>Ring|Tree|CollNet)?(?P<protocol>LL128|LL)?Kernel(?:_[a-z]+_(?P<type>[a-z]+\d+))?"
)
_ALGORITHM = pattern(r"_(RING|TREE|COLLNET(?:_DIRECT|_CHAIN)?|NVLS(?:_TREE)?|PAT)(?=_|\Z)")
_PROTOCOL = pattern(r"_(LL128|LL|SIMPLE|Simple)(?=_|\Z)")
_TYPE = pattern(
    r"_(?:[Ss]um|Prod|[Mm]in[Mm]ax|Min|Max|Avg|PreMulSum|SumPostDiv)_"
    r"(?P<type>(?:rccl_|hip_|__nv_)?[a-z]+[0-9a-z]*)"
)
_MSCCL = pattern(
    r"mscclKernel_\w+?_(?P<dtype>(?:u?int\d+_t|hip_\w+?|rccl_\w+?|[a-z]+))_(?P<p>LL128|LL|Simple)_"
)


def _communicates(symbol: Symbol, family: str, operation: str | None, **known: Any) -> KernelName:
    return _facts(symbol, _COMMUNICATES, family, collective=operation, **known)


def _reduced_format(operation: str | None, spelling: str | None) -> str | None:
    """The format, where the operation computes with it."""
    return number_format(spelling) if spelling and operation in _REDUCING else None


def _nccl(symbol: Symbol) -> KernelName | None:
    text = symbol.function
    if "nccl" not in text and "rccl" not in symbol.lower:
        return None
    old = _NCCL_2_6.search(text)
    if old:
        operation = OPERATIONS[old["operation"].lower()]
        return _communicates(
            symbol, "nccl", operation, algorithm=(old["algorithm"] or "").lower() or None,
            protocol=(old["protocol"] or "simple").lower(),
            dtype=_reduced_format(operation, old["type"]),
        )  # fmt: skip
    found = _NCCL.search(text)
    if not found:
        family = "rccl" if "rccl" in symbol.lower else "nccl"
        return _communicates(symbol, family, _first_of(_SPELLED_OPERATIONS, symbol.lower))
    known, rest = OPERATIONS.get(found["operation"].lower()), found["rest"]
    named, written, given = _ALGORITHM.search(rest), _PROTOCOL.search(rest), _TYPE.search(rest)
    # NCCL before 2.18 writes RING, Sum and int8_t even where they have no meaning.
    algorithm = named[1].lower() if named and known != "send_recv" else None
    protocol = written[1].lower() if written else None
    if found["symmetric"]:
        algorithm, protocol = "symmetric", protocol or ("ll" if "LL" in rest else None)
    # RCCL numbers its generic kernels by the unroll factor of their loops.
    family = "rccl" if re.search(r"_Generic_\d", text) or "rccl" in text else "nccl"
    dtype = _reduced_format(known, given and given["type"])
    return _communicates(symbol, family, known, algorithm=algorithm, protocol=protocol, dtype=dtype)


def _msccl(symbol: Symbol) -> KernelName | None:
    if "msccl" not in symbol.lower:
        return None
    found = _MSCCL.search(symbol.function[:200])
    return _facts(
        symbol, _COMMUNICATES, "mscclpp" if "mscclpp" in symbol.lower else "msccl", found,
        collective=_first_of(_SPELLED_OPERATIONS, symbol.lower),
        protocol=found["p"].lower() if found else None,
    )  # fmt: skip


_EXPERT_FAMILIES = (
    ("deepep", pattern(r"deep_ep::")),
    ("mori", pattern(r"mori::|\bep(?:dispatch|combine)")),
    ("moe_all_to_all", pattern(r"(?:^|_|::)(?:moe_?)?a2a|pplx")),
)


def _expert_parallel(symbol: Symbol) -> KernelName | None:
    """DeepEP, MoRI and similar: tokens sent to the experts of other ranks and back."""
    lower = symbol.lower
    family = _first_of(_EXPERT_FAMILIES, lower)
    if family is None:
        return None
    if re.search(r"get_dispatch_layout|clean_low_latency", lower):
        return _facts(symbol, KernelKind.OTHER, family)
    moves = re.search(r"dispatch|combine|all_?to_?all|a2a", symbol.base.lower())
    is_data = moves and not re.search(r"notify", symbol.base.lower())
    return _communicates(symbol, family, "all_to_all" if is_data else None)


_NVSHMEM = pattern(
    r"\A(?P<operation>[a-z]+)(?:_all|\d+|_(?P<format>[a-z0-9]+)_[a-z]+)?_on_stream_kernel"
    r"(?:_(?:threadgroup|warp|block))?\Z"
)
"""NVSHMEM's kernels; early versions also had ``barrier_all_on_stream_kernel_warp``,
``broadcast32_on_stream_kernel``, ``rdxn_float_sum_on_stream_kernel``."""
_NVSHMEM_OPERATIONS = {
    "alltoall": "all_to_all", "broadcast": "broadcast", "reducescatter": "reduce_scatter",
    # Every processing element receives the parts of all others, and the result of a reduction.
    "fcollect": "all_gather", "rdxn": "all_reduce", "barrier": None, "sync": None,
}  # fmt: skip


def _nvshmem(symbol: Symbol) -> KernelName | None:
    """NVSHMEM's own kernels, whose names do not mention it: ``rdxn_on_stream_kernel<float,
    ...>``."""
    found = _NVSHMEM.match(symbol.base)
    if not found or found["operation"] not in _NVSHMEM_OPERATIONS:
        return None
    operation = _NVSHMEM_OPERATIONS[found["operation"]]
    dtype = number_format(found["format"] or "") or _first(
        format_arguments(symbol.text[len(symbol.function) : HEAD_CHARACTERS])
    )
    return _communicates(
        symbol, "nvshmem", operation, dtype=dtype if operation in _REDUCING else None
    )


_FAMILIES = (
    ("nvshmem", pattern(r"nvshmem|rocshmem")),
    ("flashinfer", pattern(r"flashinfer::|trtllm_(?:all|moe)|allreduce_fusion_kernel")),
    ("trtllm", pattern(r"tensorrt_llm|lamport|userbuffers|\Aub::")),
    ("quickreduce", pattern(r"quickreduce")),
    ("aiter", pattern(r"aiter::")),
    ("sglang", pattern(r"sgl|sgl_hip")),
    ("vllm", pattern(r"vllm|cross_device_reduce")),
    ("pytorch", pattern(r"one_shot|two_shot|multimem|c10d|symm")),
)
_SPELLED = pattern(
    r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|send_?recv|cross_device_reduce"
    r"|userbuffers|nvshmem|rocshmem|oneRankReduce"
)
_SPELLED_OPERATIONS = (
    ("all_reduce", pattern(r"cross_device_reduce")),
    ("reduce_scatter", pattern(r"reduce_?scatter")),
    ("all_reduce", pattern(r"all_?reduce|userbuffers_\w*sum")),
    ("all_gather", pattern(r"all_?gather|fcollect")),
    ("all_to_all", pattern(r"all_?to_?all")),
    ("send_recv", pattern(r"send_?recv")),
    ("broadcast", pattern(r"broadcast")),
)


def _spelled(symbol: Symbol) -> KernelName | None:
    """All-reduces of PyTorch's symmetric memory, vLLM, FlashInfer, TensorRT-LLM ..."""
    lower = symbol.lower
    if not _SPELLED.search(lower) and "oneRankReduce" not in symbol.function:
        return None
    if lower.startswith(("at::native::", "triton_")):
        return None
    shots = re.search(r"(one|two|1|2)_?(?:shot|stage)", lower)
    algorithm = None
    if "multimem" in lower:
        algorithm = "multimem"
    elif shots:
        algorithm = "one_shot" if shots[1] in ("one", "1") else "two_shot"
    protocol, operation = (
        "ll" if "lamport" in lower else None,
        _first_of(_SPELLED_OPERATIONS, lower),
    )
    if "onerankreduce" in lower:
        family, operation = "nccl", None
    elif "mscclpp::" in symbol.head:
        # Its kernels are identified by their channel arguments: allreduce7<...>(..., mscclpp::...).
        family = "mscclpp"
    else:
        family = _first_of(_FAMILIES, lower) or ""
    return _communicates(symbol, family, operation, algorithm=algorithm, protocol=protocol)


def collective(symbol: Symbol) -> KernelName | None:
    """Communication between GPUs, by any library."""
    rules = (_msccl, _nccl, _expert_parallel, _nvshmem, _spelled)
    return next((found for rule in rules if (found := rule(symbol))), None)


_NVJET = pattern(
    r"nvjet_(?:sm\d+_)?(?P<letters>[a-z]{3,7})_(?:mma_)?(?P<m>\d+)x(?P<n>\d+)"
    r"(?=x\d+_|_\d+x)[x_](?P<k>\d+)[x_](?P<stages>\d+)(?:_(?P<c1>\d+)x(?P<c2>\d+)(?![x\d]))?"
)
_NVJET_LETTERS = {
    "t": "bf16", "h": "f16", "s": "f32", "d": "f64", "q": "e4m3", "r": "e5m2", "o": "e2m1",
    "i": "s32",
}  # fmt: skip
_NVJET_LAYOUT = pattern(r"_(?P<layout>[NT]{2})[NT]{1,2}(?:_|\Z)")


def nvjet(symbol: Symbol) -> KernelName | None:
    """``nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT`` of cuBLASLt.

    Three letters are the formats of A (and B), compute and D; five are those of A, B, C, compute
    and D. The tile, k x stages and the cluster follow. The meanings of the letters were inferred
    from kernels with inputs of known format.
    """
    name = symbol.head
    if "nvjet" not in name:
        return None
    found = _NVJET.search(name)
    if not found:
        return _facts(symbol, _GEMM, "nvjet")
    first, compute, last = map(_NVJET_LETTERS.get, (found["letters"][i] for i in (0, -2, -1)))
    layout = _NVJET_LAYOUT.search(name, found.end())
    return _facts(symbol, _GEMM, "nvjet", found, layout,
                  dtype=first, accumulator=compute, result_dtype=last)  # fmt: skip


_LAYOUT = pattern(r"_(?P<layout>[nt]{2})[nt]?(?=_|\Z|::)")
_SLICES = pattern(r"_split_?[kK](?P<split_k>\d+)")
_CONVOLUTIONS = ("fprop", "dgrad", "wgrad")

_XMMA = pattern(
    r"sm\d+_xmma_(?P<op>[a-z0-9]{1,12})_(?:[a-z_]{0,40}_)??"
    r"(?P<formats>(?:[a-z]{1,3}\d{1,2}){2,3}_(?:[a-z]{1,3}\d{1,2}){2,3}_[a-z]{1,3}\d{1,2})_"
    r"(?:(?P<layout>[nt]{2})_[nt]_)?"
)
_FORMAT = pattern(r"(?:tf|bf|cf|f|i|u|e\dm)\d+")
_XMMA_PARTS = (
    pattern(r"_tilesize(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"),
    pattern(r"_stage(?P<stages>\d+)"),
    pattern(r"_(?:cga|cluster)size(?P<c1>\d+)x(?P<c2>\d+)"),
    _SLICES,
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
    is_convolution = found and found["op"] in (*_CONVOLUTIONS, "conv")
    groups = [_FORMAT.findall(part) for part in found["formats"].split("_")] if found else []
    stored, multiplied = groups[:2] if len(groups) == 3 else ([], [])
    formats = {"dtype": multiplied[:1], "result_dtype": stored[-1:], "accumulator": multiplied[-1:]}
    return _facts(
        symbol, KernelKind.CONVOLUTION if is_convolution else _GEMM, "xmma", found,
        *(part.search(name) for part in _XMMA_PARTS),
        short=cut(symbol.function.partition("_execute")[0]),
        **{fact: number_format(one) for fact, ones in formats.items() for one in ones},
    )  # fmt: skip


_LETTERS = {
    "s": "f32", "h": "f16", "d": "f64", "i": "s32", "c": "c64", "z": "c128", "gc": "c64",
    "gz": "c128",
}  # fmt: skip
_LEGACY = pattern(
    r"(?:^|_)(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_"
    r"(?:(?P<result>[a-z]+\d+)_)?(?P<letter>g?[a-z])(?P<mma>\d*)(?P<library>gemm|cudnn)_"
    r"(?:(?P<input>[a-z]+\d+)_)?(?P<m>\d+)x(?P<n>\d+)(?P<rest>\w*)"
)
_STAGES = pattern(r"_stages_(?P<k>\d+)x(?P<stages>\d+)")


def _legacy(symbol: Symbol, library: str) -> KernelName | None:
    """``ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn``, ``volta_sgemm_128x64_nn``;
    with the same words cuDNN's convolutions,
    ``volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1``."""
    found = _LEGACY.search(symbol.head) if f"{library}_" in symbol.head else None
    if not found or found["library"] != library:
        return None
    return _lettered(symbol, found, found["input"], "cudnn" if library == "cudnn" else "cublas",
                     _STAGES.search(found["rest"]), is_convolution=library == "cudnn")  # fmt: skip


legacy_cublas, legacy_cudnn = (partial(_legacy, library=name) for name in ("gemm", "cudnn"))


def _lettered(
    symbol: Symbol,
    found: re.Match[str],
    given: str | None,
    family: str,
    tile: re.Match[str] | None,
    *,
    is_convolution: bool,
    **known: Any,
) -> KernelName:
    """A name with a letter for its accumulator; f32 inputs on tensor cores (it has an mma shape and
    no other format) are multiplied as TF32."""
    letter, rest = found["letter"], found["rest"]
    accumulator = _LETTERS.get(letter)
    dtype = "tf32" if letter == "s" and found["mma"] else accumulator
    return _facts(
        symbol, KernelKind.CONVOLUTION if is_convolution else _GEMM, family, found, tile,
        None if is_convolution else _LAYOUT.search(rest), _SLICES.search(rest),
        dtype=number_format(given) if given else dtype,
        result_dtype=number_format(found["result"]) if found["result"] else accumulator,
        accumulator=accumulator, **known,
    )  # fmt: skip


_CUTLASS2 = pattern(
    r"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_"
    r"(?:(?P<result>[a-z]+\d+)_)?(?P<letter>g?[a-z])(?P<mma>\d*)"
    r"(?P<op>gemm|fprop|dgrad|wgrad|[a-z]+)_?(?P<rest>\w*)"
)
_CUTLASS2_TILE = pattern(r"(?:\A|_)(?P<m>\d+)x(?P<n>\d+)(?:_(?P<k>\d+)x(?P<stages>\d+))?(?=_|\Z)")
_CUTLASS2_INPUT = pattern(r"(?:\A|_)([a-z]+\d+)_(?=\d+x)")
_CUTLASS3 = pattern(
    r"cutlass3x_sm\d+_(?:sp)?(?:bs)?(?:tensorop|simt)_[a-z]*[\dx]*(?P<op>gemm|[a-z]+)_"
    r"(?:block_scaled_)?"
    r"(?P<a>[a-z][a-z0-9]*)_(?P<b>[a-z][a-z0-9]*)_(?P<acc>[a-z]+\d+)_(?:[a-z][a-z0-9]*)_"
    r"(?P<result>[a-z][a-z0-9]*)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_"
    r"(?:(?P<c1>\d+)x(?P<c2>\d+)x\d+_)?(?P<stages>\d+)_(?P<layout>[nt]{2})"
)


def cutlass_library(symbol: Symbol) -> KernelName | None:
    """``cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8`` and
    ``cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_...``,
    alone or as the argument of ``cutlass::Kernel``."""
    if "cutlass3x_" in symbol.head:
        name = symbol.head[symbol.head.index("cutlass3x_") :]
        found = _CUTLASS3.match(name)
        kind = KernelKind.CONVOLUTION if found and found["op"] in _CONVOLUTIONS else _GEMM
        known = {"dtype": number_format(found["a"].rpartition("x")[2])} if found else {}
        short = cut(re.split(r"[^\w]", name, maxsplit=1)[0])
        return _facts(symbol, kind, "cutlass3", found, short=short, **known)
    found = _CUTLASS2.search(symbol.head)
    if not found:
        return None
    given = _CUTLASS2_INPUT.search(found["rest"])
    return _lettered(
        symbol, found, given and given[1],
        "cudnn" if "cudnn" in symbol.function else "cutlass2", _CUTLASS2_TILE.search(found["rest"]),
        is_convolution=found["op"] in _CONVOLUTIONS, short=cut(found.group().partition("::")[0]),
    )  # fmt: skip


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
            kind = _GEMM
    elif sort in _POINTWISE:
        kind = KernelKind.COPY if _INDUCTOR_COPY.match(rest[:200]) else KernelKind.ELEMENTWISE
    elif "softmax" in rest:
        kind = KernelKind.SOFTMAX
    elif _INDUCTOR_NORM.search(rest[:500]):
        kind = KernelKind.NORMALISATION
    else:
        kind = KernelKind.REDUCTION
    return _facts(symbol, kind, "triton")


_KITTENS = (
    (KernelKind.ATTENTION, pattern(r"(?i)attn|attend|mha|mla_")),
    (KernelKind.CONVOLUTION, pattern(r"(?i)conv")),
    (_GEMM, pattern(r"(?i)matmul|gemm|gmm")),
)
_KITTENS_GEMM = pattern(
    r"\Akernel\W(?:.{0,200}\W)?\w{0,60}(?:matmul|gemm)\w{0,60}(?:_|::)globals\b"
)


def thunder_kittens(symbol: Symbol) -> KernelName | None:
    """``kittens::prototype::lcf::kernel<matmul_template<2, 4, 8>>`` of ThunderKittens, whose
    frameworks name the template that they run, and its kernels without a framework,
    ``kernel(matmul_globals)``."""
    kind: KernelKind | None = None
    if _KITTENS_GEMM.match(symbol.text[:600]):
        kind = _GEMM
    elif symbol.function.startswith("kittens::"):
        kind = _first_of(_KITTENS, symbol.text[len(symbol.function) : 400])
    return _facts(symbol, kind, "thunderkittens") if kind else None


_CONTAINERS = pattern(
    r"(?:device_kernel|Kernel2?|kentry|kentry_kernel|kernel|launch_kernel|global_kernel)\Z"
)
_ATTENTION_FAMILIES = (
    ("flash_attention", pattern(r"flash::|flash_(?:fwd|bwd)|flashattn")),
    ("xformers", pattern(r"pytorchmemeffattention|\Afmha_cutlass")),
    ("aotriton", pattern(r"\A(?:attn_fwd|bwd_kernel_|bwd_preprocess)")),
)
_PYTORCH_CONVOLUTION = pattern(r"conv_depthwise|slow_conv|im2col|col2im|vol2col")
_IGEMM = pattern(
    r"igemm_[a-z]+_gtcx?\d?_[a-z]+_(?P<dtype>[a-z]+\d+)_\w{0,20}?bt(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
)


def attention_or_convolution(symbol: Symbol) -> KernelName | None:
    """Attention and convolutions, matched before GEMMs: both are built from GEMMs, and their names
    contain the word."""
    lower = symbol.lower
    if _CONTAINERS.search(symbol.base):
        lower = symbol.text[:4096].lower()
    if KV_CACHE.search(lower) and "attention" not in lower and "fmha" not in lower:
        return _facts(symbol, KernelKind.COPY, family_of(symbol))
    if lower.startswith("at::native::") and not _PYTORCH_CONVOLUTION.search(lower):
        return None
    if ATTENTION.search(lower):
        family = _first_of(_ATTENTION_FAMILIES, symbol.text[:4096].lower()) or family_of(symbol)
        return _facts(symbol, KernelKind.ATTENTION, family)
    if not CONVOLUTION.search(lower):
        return None
    return _facts(symbol, KernelKind.CONVOLUTION, family_of(symbol), _IGEMM.search(symbol.head))


_CONTAINER = pattern(r"cutlass\w*::(?:device_kernel|Kernel2?)\Z")
_SIZE = r"(?:cute::)?(?:C<(?:\(int\))?|_)(\d{1,6})>?"
_TUPLE = pattern(rf"cute::tuple<{_SIZE}, ?{_SIZE}, ?{_SIZE} ?>")
_MAINLOOP = pattern(r"::Mainloop\w{1,80}<(?:\(int\))?(?P<stages>\d{1,3})\b")
_SHAPE = pattern(
    r"GemmShape<(?:\(int\))?(?P<m>\d{1,5}), ?(?:\(int\))?(?P<n>\d{1,5}), ?"
    r"(?:\(int\))?(?P<k>\d{1,5})>"
)
_STRIDE = pattern(
    rf"cute::tuple<(?:{_SIZE}|long|int|l|long long), ?(?:{_SIZE}|long|int|long long),"
)


def cutlass_template(symbol: Symbol) -> KernelName | None:
    """``cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<...>>`` and similar; other
    kernels (attention, convolution) are left to other grammars."""
    text = symbol.text
    if not _CONTAINER.search(symbol.function) and "kernel_cutlass_" not in symbol.base:
        return None
    if "ReduceSplitK" in text:
        kind, family = KernelKind.GEMM_REDUCTION, "cutlass2"
        if "cudnn" in symbol.function:
            kind, family = KernelKind.CONVOLUTION, "cudnn"
        return _facts(symbol, kind, family, short="cutlass::ReduceSplitK")
    if "gemm" not in text.lower():
        return None
    if symbol.base == "device_kernel":
        return _cutlass3(symbol)
    shape = next((s for s in _SHAPE.finditer(text) if int(s["m"]) > 1), None)
    family = "cutlass2" if "kernel_cutlass_" not in symbol.base else "cutlass3"
    return _facts(symbol, _GEMM, family, shape, dtype=_first(format_arguments(text[:4000])))


def _cutlass3(symbol: Symbol) -> KernelName:
    text = symbol.text
    mainloop = _MAINLOOP.search(text)
    cluster = _TUPLE.search(text, mainloop.end()) if mainloop else None
    tile = _TUPLE.search(text, cluster.end()) if cluster else None
    known: dict[str, Any] = {"short": "cutlass::GemmUniversal"}
    if cluster:
        known["cluster"] = (int(cluster[1]), int(cluster[2]))
    if tile:
        operands = text[tile.end() : tile.end() + 600]
        known["tile"] = (int(tile[1]), int(tile[2]), int(tile[3]))
        known["dtype"] = _first(format_arguments(operands))
        strides = _STRIDE.findall(operands)
        if len(strides) >= 2:
            # The strides of (M, K) and (N, K): for BLAS, A is transposed where K is contiguous, B
            # where it is not.
            known["layout"] = ("n" if strides[0][0] else "t") + ("t" if strides[1][0] else "n")
    return _facts(symbol, _GEMM, "cutlass3", mainloop, **known)


_MAJORS = pattern(r"(Row|Column)Major")
_CK_NUMBERS = pattern(r"(?<=, )\(?(?:\([^()]{1,80}\))?(\d{1,6})(?=[,>])")
_CK_TILE_SHAPE = pattern(
    r"TileGemmShape<(?:ck_tile::)?sequence<(?P<m>\d{1,5}), ?(?P<n>\d{1,5}), ?(?P<k>\d{1,5})>"
)


def composable_kernel(symbol: Symbol) -> KernelName | None:
    """``ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<RowMajor, ColumnMajor,
    RowMajor, formats ..., block size, M, N, K ...>>`` and ``ck_tile`` GEMMs, which have the tile in
    ``TileGemmShape``, and A, B and accumulator in the pipeline's problem."""
    text = symbol.text
    majors = _MAJORS.findall(text)[:2]
    layout = "".join("t" if m == "Row" else "n" for m in majors) if len(majors) == 2 else None
    if symbol.function.startswith("ck_tile::"):
        words = text.lower()
        if not ("gemm" in words or "flatmm" in words) or "sorting" in words:
            return None
        problem = text.find("PipelineProblem<")
        formats = format_arguments(text[problem : problem + 300], bf16_as_ushort=True)
        if problem < 0 or len(formats) < 3:
            formats = []
        return _facts(symbol, _GEMM, "ck", _CK_TILE_SHAPE.search(text), layout=layout,
                      dtype=_first(formats), accumulator=_first(formats, 2))  # fmt: skip
    if not symbol.function.startswith("ck::") or "gemm" not in symbol.lower:
        return None
    formats = format_arguments(text[:3000], bf16_as_ushort=True)
    return _facts(
        symbol, _GEMM, "ck", layout=layout, dtype=_first(formats),
        tile=_ck_tile(text) if "cshuffle" in text or "MoeGemm" in text else None,
        accumulator=_first(formats, 2) if len(formats) > 3 else None,
        result_dtype=_first(formats, 4),
    )  # fmt: skip


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
    r"(?:^|_|::)(?P<dtype>bf16|f16|fp16|fp8|f8|i8|int8|f4|fp4)gemm_(?:(?P<result>[a-z]+\d+?)_)?"
)
_AITER_FMOE = pattern(r"(?:^|_|::)fmoe_")
_AITER_TILE = pattern(r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})(?=_|\Z)")


def aiter(symbol: Symbol) -> KernelName | None:
    """Assembly kernels of AITER: ``aiter::bf16gemm_fp32bf16_tn_96x64_pf3_splitk``,
    ``fp8gemm_bf16_blockscale_BpreShuffle_80x128``, and its fused mixtures of experts ``fmoe_``."""
    base = symbol.base
    if "gemm_" not in base and "fmoe_" not in base:
        return None
    found = _AITER_GEMM.search(base)
    if not found and not _AITER_FMOE.search(base):
        return None
    layout, known = re.search(r"_(?P<layout>[nt]{2})_", base), {}
    if not found:
        narrow = re.search(r"(?i)(fp8|int8|fp4)", base)
        wide = "bf16" if "_bf16" in base else None
        known = {"dtype": number_format(narrow[1]) if narrow else wide}
    return _facts(symbol, _GEMM, "aiter", found, _AITER_TILE.search(base), layout, **known)


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
    known: dict[str, Any] = {}
    # In newer kernels the first argument is an enumerator: ``(cute::UMMA::Major)0``.
    arguments = re.sub(r"\([\w:]{1,60}\)\d+,", "", symbol.text[len(symbol.function) : 400])
    numbers = [int(n) for n in _UNSIGNED.findall(arguments)]
    # Kernels for sm_100 have other parameters, which change from version to version.
    if _DEEP_TILED.match(symbol.base) and len(numbers) > 6:
        known["tile"] = (numbers[4], numbers[5], numbers[6])
        # The tile is followed by one to three swizzles, in bytes, and then the stages.
        known["stages"] = next((n for n in numbers[7:] if n not in _SWIZZLES), None)
        multicast = _MULTICAST.search(arguments)
        if multicast:
            # Blocks that share a tile of A are neighbours along N; of B, along M.
            blocks = int(multicast[1])
            known["cluster"] = (1, blocks) if multicast[2] == "true" else (blocks, 1)
    dtype = number_format(given[1]) if given else "e4m3" if "fp8" in symbol.base else None
    return _facts(symbol, _GEMM, "deep_gemm", dtype=dtype, accumulator="f32", **known)


_TRTLLM = pattern(
    r"\A(?:bmm|gemm|batchedGemm)_(?P<result>[A-Z][a-z0-9]+)_(?P<dtype>[A-Z][A-Za-z]*?\d+(?:m\d+)?)"
    r"(?P<b>[A-Z][a-z0-9]+)?_(?P<acc>[A-Z][a-z]+\d+)_"
)
_TRTLLM_PARTS = (
    pattern(r"_t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:u\d+)?_s(?P<stages>\d+)"),
    pattern(r"_(?:c|cga)(?P<c1>\d+)x(?P<c2>\d+)x\d+_"),
    pattern(r"_r[MN]_(?P<layout>[TN]{2})_"),
)
_WEIGHT_ONLY_INPUT = pattern(r"weight_only::(?P<dtype>FP16|BF16)DetailsA")


def trtllm(symbol: Symbol) -> KernelName | None:
    """``bmm_Bfloat16_E2m1E2m1_Fp32_..._t128x64x128u2_s6_et64x64_..._c1x1x1_rM_TN_...``."""
    name = symbol.head
    found = _TRTLLM.match(name) if name.startswith(("bmm_", "gemm_", "batchedGemm_")) else None
    if not found:
        return None
    parts = (part.search(name) for part in _TRTLLM_PARTS)
    short = cut(symbol.function.partition("_et")[0])
    return _facts(symbol, _GEMM, "trtllm", found, *parts, short=short)


def trtllm_weight_only(symbol: Symbol) -> KernelName | None:
    """``tensorrt_llm::kernels::weight_only::kernel<...KernelDetails<...FP16DetailsA,
    ...Int4DetailsW, ...>, ...>``: up to 16 rows by weights of 4 or 8 bits."""
    if not symbol.function.endswith("weight_only::kernel"):
        return None
    given = _WEIGHT_ONLY_INPUT.search(symbol.text[:2000])
    return _facts(symbol, _GEMM, "trtllm", given, short="weight_only::kernel")


_ROCBLAS = (
    (KernelKind.GEMV, pattern(r"gemv|dot")),
    (KernelKind.GEMM_REDUCTION, pattern(r"gemm_scale|scal")),
    (_GEMM, pattern(r"gemm|trmm|syrk|symm")),
)


def rocblas(symbol: Symbol) -> KernelName | None:
    """rocBLAS's own kernels: ``rocblas_gemvt_kernel<...>``, ``rocblas_gemm_batched_kernel``."""
    kind = _first_of(_ROCBLAS, symbol.base) if "rocblas" in symbol.lower else None
    if not kind:
        return None
    formats = format_arguments(symbol.text[len(symbol.function) : 600])
    return _facts(symbol, kind, "rocblas", dtype=_first(formats))


_CUBLAS_FUNCTIONS = pattern(
    r"\A(?:gemm(?:SN|k1|E\d|_kernel\d)|gemv(?:2[NT]|NSP|x)|(?:magma_)?[sdcz]gemm_?(?:Ex_|largek|\d))"
    r"|\Asplit_?[kK]_?[rR]educe"
)
_CUBLAS_WORDS = pattern(r"\A(?:dot_kernel|reduce_1Block_kernel)\Z|gem[mv]")
_SMALL_LAYOUT = pattern(r"gemmSN_(?P<layout>[NT]{2})")
_DOT_OPERAND = pattern(r"cublasGemvTensor\w*<(?P<dtype>[\w:]+)")


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
        return _facts(symbol, KernelKind.GEMM_REDUCTION, family)
    if base == "dot_kernel":
        return _facts(symbol, KernelKind.GEMV, family, _DOT_OPERAND.search(symbol.text))
    formats = format_arguments(symbol.text[len(symbol.function) : 600])
    known, layout = {"dtype": _first(formats)}, _SMALL_LAYOUT.search(base)
    if "gemv" not in base:
        return _facts(symbol, _GEMM, family, layout, **known)
    if len(formats) > 3:
        known |= {"result_dtype": formats[2], "accumulator": formats[3]}
    return _facts(symbol, KernelKind.GEMV, family, layout, **known)


_OGS = pattern(
    r"matmul_ogs_[NT]{3}_(?P<result>[a-z0-9]{1,12}?)x(?P<dtype>[a-z0-9]{1,12}?)x[a-z0-9]{1,12}"
    r"_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x(?P<split_k>\d+)"
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
# Library names that also appear in kernels which only unpack weights.
_LIBRARY_WORDS = pattern(r"(?i)marlin|exllama|tinygemm|(?:^|_)mmq")
# Sums the results of a token's experts, and with them slices of k, in Triton's matmul_ogs: its time
# grows with the number of experts per token, not with k.
_FINALIZES = pattern(r"_finalize_matmul")
_TRITON = ("_", "matmul_kernel", "fused_moe_kernel", "gemm_fusion_dot")
_REDUCES = pattern(r"(?i)reduce|split_?k_?(?:sum|combine)")


def any_gemm(symbol: Symbol) -> KernelName | None:
    """Kernels with GEMM, matmul or gemv in their names that belong to none of the known
    families."""
    base = symbol.base
    if not _WORDS.search(base[:400]) or _NO_GEMM.search(base[:400]):
        return None
    if symbol.function.startswith("at::native::") and "gemm" not in base.lower():
        return None
    if _FINALIZES.match(base):
        return _facts(symbol, KernelKind.REDUCTION, "triton")
    if _UNPACKS.search(base[:400]) and not _WORDS.search(_LIBRARY_WORDS.sub("", base[:400])):
        return None
    kind = _GEMM
    if re.search(r"(?i)gemv|mul_mat_vec", base):
        kind = KernelKind.GEMV
    elif _REDUCES.search(base) and "gemm" in base.lower():
        kind = KernelKind.GEMM_REDUCTION
    ogs = _OGS.search(base)
    blocks = {letter.upper(): int(size) for letter, size in _BLOCKS.findall(base[:400])}
    is_triton = bool(ogs or blocks) or base.startswith(_TRITON)
    family = "iree" if "_dispatch_" in base else "triton" if is_triton else ""
    known: dict[str, Any] = {}
    if not ogs and {"M", "N"} <= blocks.keys():
        known["tile"] = (blocks["M"], blocks["N"], blocks.get("K", 0))
    return _facts(symbol, kind, family, ogs, **known)


GRAMMARS: tuple[Callable[[Symbol], KernelName | None], ...] = (
    transfer, tensile, collective, nvjet, xmma, cutlass_library, inductor, thunder_kittens,
    legacy_cudnn,
    # Before the GEMMs that they are built from.
    attention_or_convolution,
    cutlass_template, legacy_cublas, composable_kernel, aiter, deep_gemm, trtllm,
    trtllm_weight_only, rocblas, cublas_functions, any_gemm,
)  # fmt: skip
"""Grammars in the order in which they are tried."""


def family_of(symbol: Symbol) -> str:
    """The library, by namespace or naming convention."""
    return next((family for family, words in FAMILIES if words.match(symbol.lower)), "")


def by_words(symbol: Symbol) -> KernelName:
    """The kind that the words of the name indicate; ``other`` where they indicate none.

    Functions that apply another function are classified by their first template arguments, and so
    are containers (``ck_tile::kentry``, ``rocprim::...::trampoline_kernel``).
    """
    if DRIVERS.search(symbol.lower):
        kind = _first_of(APPLIED, symbol.text[:600].lower()) or KernelKind.ELEMENTWISE
    else:
        inside = symbol.text[len(symbol.function) : 1000].lower()
        found = _first_of(FUNCTIONS, symbol.lower) or _first_of(FUNCTIONS[:-1], inside)
        kind = found or KernelKind.OTHER
    return _facts(symbol, kind, family_of(symbol))


def _first_of(table: Iterable[tuple[_Fact, re.Pattern[str]]], text: str) -> _Fact | None:
    """The first fact in a table whose words occur in `text`."""
    return next((fact for fact, words in table if words.search(text)), None)
