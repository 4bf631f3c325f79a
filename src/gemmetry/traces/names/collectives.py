"""Names of communication kernels.

Sources: names in real traces; NVIDIA/nccl ``src/device/generate.py`` (names since 2.18),
``src/device/symmetric/generate.py`` (2.27) and ``src/collectives/device/common.h`` (before);
deepseek-ai/DeepEP ``csrc/kernels``; NVIDIA/nvshmem ``src/host/stream/coll``; microsoft/mscclpp
``apps/nccl/src``; PyTorch ``CUDASymmetricMemoryOps.cu``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gemmetry.traces.names.symbols import HEAD_CHARACTERS, Symbol
from gemmetry.traces.names.words import (
    KernelKind,
    KernelName,
    format_arguments,
    number_format,
    pattern,
)

OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallpivot": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
}
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
    r"mscclKernel_\w+?_(?P<type>(?:u?int\d+_t|hip_\w+?|rccl_\w+?|[a-z]+))_(?P<p>LL128|LL|Simple)_"
)


def _nccl(symbol: Symbol) -> KernelName | None:
    text = symbol.function
    if "nccl" not in text and "rccl" not in symbol.lower:
        return None
    old = _NCCL_2_6.search(text)
    if old:
        operation = OPERATIONS[old["operation"].lower()]
        return KernelName(
            kind=KernelKind.COLLECTIVE,
            family="nccl",
            collective=operation,
            algorithm=(old["algorithm"] or "").lower() or None,
            protocol=(old["protocol"] or "simple").lower(),
            dtype=number_format(old["type"]) if old["type"] and operation in _REDUCING else None,
            short=symbol.short,
        )
    found = _NCCL.search(text)
    if not found:
        return KernelName(
            kind=KernelKind.COLLECTIVE,
            family="rccl" if "rccl" in symbol.lower else "nccl",
            collective=_spelled_operation(symbol.lower),
            short=symbol.short,
        )
    operation_ = OPERATIONS.get(found["operation"].lower())
    rest = found["rest"]
    algorithm, protocol, given = _ALGORITHM.search(rest), _PROTOCOL.search(rest), _TYPE.search(rest)
    named = algorithm[1].lower() if algorithm else None
    return KernelName(
        kind=KernelKind.COLLECTIVE,
        # RCCL numbers its generic kernels by the unroll factor of their loops.
        family="rccl" if re.search(r"_Generic_\d", text) or "rccl" in text else "nccl",
        collective=operation_,
        # NCCL before 2.18 writes RING, Sum and int8_t even where they have no meaning.
        algorithm="symmetric"
        if found["symmetric"]
        else None
        if operation_ == "send_recv"
        else named,
        protocol=protocol[1].lower()
        if protocol
        else "ll"
        if found["symmetric"] and "LL" in rest
        else None,
        dtype=number_format(given["type"]) if given and operation_ in _REDUCING else None,
        short=symbol.short,
    )


def _msccl(symbol: Symbol) -> KernelName | None:
    if "msccl" not in symbol.lower:
        return None
    found = _MSCCL.search(symbol.function[:200])
    return KernelName(
        kind=KernelKind.COLLECTIVE,
        family="mscclpp" if "mscclpp" in symbol.lower else "msccl",
        collective=_spelled_operation(symbol.lower),
        dtype=number_format(found["type"]) if found else None,
        protocol=found["p"].lower() if found else None,
        short=symbol.short,
    )


def _expert_parallel(symbol: Symbol) -> KernelName | None:
    """DeepEP, MoRI and similar: tokens sent to the experts of other ranks and back."""
    lower = symbol.lower
    if "deep_ep::" in lower:
        family = "deepep"
    elif "mori::" in lower or re.search(r"\bep(?:dispatch|combine)", lower):
        family = "mori"
    elif re.search(r"(?:^|_|::)(?:moe_?)?a2a|pplx", lower):
        family = "moe_all_to_all"
    else:
        return None
    if re.search(r"get_dispatch_layout|clean_low_latency", lower):
        return KernelName(kind=KernelKind.OTHER, family=family, short=symbol.short)
    moves = re.search(r"dispatch|combine|all_?to_?all|a2a", symbol.base.lower())
    is_data = moves and not re.search(r"notify", symbol.base.lower())
    return KernelName(
        kind=KernelKind.COLLECTIVE,
        family=family,
        collective="all_to_all" if is_data else None,
        short=symbol.short,
    )


_NVSHMEM = pattern(
    r"\A(?P<operation>[a-z]+)(?:_all|\d+|_(?P<format>[a-z0-9]+)_[a-z]+)?_on_stream_kernel"
    r"(?:_(?:threadgroup|warp|block))?\Z"
)
"""In early versions also ``barrier_all_on_stream_kernel_warp``, ``broadcast32_on_stream_kernel``,
``rdxn_float_sum_on_stream_kernel``."""
_NVSHMEM_OPERATIONS = {
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    # Every processing element receives the parts of all others, and the result of a reduction.
    "fcollect": "all_gather",
    "rdxn": "all_reduce",
    "reducescatter": "reduce_scatter",
    "barrier": None,
    "sync": None,
}


def _nvshmem(symbol: Symbol) -> KernelName | None:
    """NVSHMEM's own kernels, whose names do not mention it: ``rdxn_on_stream_kernel<float,
    ...>``."""
    found = _NVSHMEM.match(symbol.base)
    if not found or found["operation"] not in _NVSHMEM_OPERATIONS:
        return None
    operation = _NVSHMEM_OPERATIONS[found["operation"]]
    named = number_format(found["format"] or "")
    formats = [named] if named else format_arguments(
        symbol.text[len(symbol.function) : HEAD_CHARACTERS]
    )  # fmt: skip
    return KernelName(
        kind=KernelKind.COLLECTIVE,
        family="nvshmem",
        collective=operation,
        dtype=formats[0] if formats and operation in _REDUCING else None,
        short=symbol.short,
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


def _spelled_operation(lower: str) -> str | None:
    if "cross_device_reduce" in lower:
        return "all_reduce"
    for words, operation in (
        ("reduce_?scatter", "reduce_scatter"),
        ("all_?reduce|userbuffers_\\w*sum", "all_reduce"),
        ("all_?gather|fcollect", "all_gather"),
        ("all_?to_?all", "all_to_all"),
        ("send_?recv", "send_recv"),
        ("broadcast", "broadcast"),
    ):
        if re.search(words, lower):
            return operation
    return None


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
    if "onerankreduce" in lower:
        family = "nccl"
    elif "mscclpp::" in symbol.head:
        # Its kernels are identified by their channel arguments: allreduce7<...>(..., mscclpp::...).
        family = "mscclpp"
    else:
        family = next((name for name, words in _FAMILIES if words.search(lower)), "")
    return KernelName(
        kind=KernelKind.COLLECTIVE,
        family=family,
        collective=_spelled_operation(lower) if "onerankreduce" not in lower else None,
        algorithm=algorithm,
        protocol="ll" if "lamport" in lower else None,
        short=symbol.short,
    )


_RULES: tuple[Callable[[Symbol], KernelName | None], ...] = (
    _msccl, _nccl, _expert_parallel, _nvshmem, _spelled,
)  # fmt: skip


def collective(symbol: Symbol) -> KernelName | None:
    """Communication between GPUs, by any library."""
    return next((found for rule in _RULES if (found := rule(symbol))), None)
