"""Regular expressions that are compiled on first use.

The grammars have more than a hundred, which take 15 ms to compile; the names of one trace need a
third of them.

The facts that a kernel's name can encode.

The words that classify kernels which match no grammar, in lower case, as patterns.

They were collected from the kernel names of PyTorch, cuDNN, MIOpen, CUB, rocPRIM, FBGEMM, vLLM,
SGLang, FlashAttention, FlashInfer and others in real traces.

Spellings of number formats in kernel names -> the names of ``domain/operation.py``.

Formats that gemmetry does not compute with have names too: ``c64`` and ``c128`` (complex), ``e2m1``
(fp4), ``u8``, ``s64`` ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast


class _Pattern:
    """Has the methods of the compiled pattern, which is compiled on first use."""

    def __init__(self, text: str, flags: int) -> None:
        self._arguments = (text, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._arguments)
        for method in ("search", "match", "sub", "findall", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Deferred ``re.compile(text, flags)``; errors in `text` are raised on first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


class KernelKind(StrEnum):
    """Kind of work that a kernel does."""

    GEMM = "gemm"
    GEMM_REDUCTION = "gemm_reduction"
    """A helper pass of a GEMM: sums the slices of split-k, or scales C first."""
    GEMV = "gemv"
    """Matrix by vector, and the vector by vector kernels that BLAS calls for a matmul."""
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    """Convolutions, including implicit-GEMM ones, and their helper passes."""
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    """Sums, means, scans, pooling, losses."""
    COPY = "copy"
    """Copies, concatenations, transpositions, changes of layout."""
    FILL = "fill"
    COLLECTIVE = "collective"
    """Communication between GPUs."""
    EMBEDDING = "embedding"
    """Rows by index: embedding tables, gather, scatter, index_select."""
    SORT = "sort"
    """Sorts, top-k, searches."""
    OPTIMIZER = "optimizer"
    RANDOM = "random"
    """Random numbers, dropout, sampling."""
    OTHER = "other"


GEMM_KINDS = frozenset({KernelKind.GEMM, KernelKind.GEMM_REDUCTION, KernelKind.GEMV})
"""The kinds whose time is GEMM time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """Facts encoded in a name; None where it does not specify a fact."""

    kind: KernelKind
    family: str = ""
    """The library or generator: ``cublas``, ``cublaslt``, ``nvjet``, ``cutlass2``, ``cutlass3``,
    ``xmma``, ``triton``, ``hipblaslt``, ``tensile``, ``ck``, ``aiter``, ``pytorch``, ``nccl`` ...
    "" where it is not known."""
    tile: tuple[int, int, int] | None = None
    """M, N, K of a thread block's tile; K is 0 where only M and N are specified."""
    stages: int | None = None
    """Number of pipeline stages between memory and the multiplication."""
    cluster: tuple[int, int] | None = None
    """Blocks of a cluster along M and N."""
    layout: str | None = None
    """``nn``, ``nt``, ``tn`` or ``tt``: op(A) and op(B) in BLAS's column-major convention."""
    dtype: str | None = None
    """Format in which the inputs are multiplied (``tf32`` for f32 inputs on TF32 tensor cores)."""
    result_dtype: str | None = None
    accumulator: str | None = None
    split_k: int | None = None
    """Slices of k; None where the name does not specify their number."""
    collective: str | None = None
    """The collective, named as in nccl-tests: ``all_reduce``, ``all_gather``, ``reduce_scatter``,
    ``all_to_all``, ``broadcast``, ``reduce``, ``gather``, ``scatter``, ``send_recv``."""
    algorithm: str | None = None
    """``ring``, ``tree``, ``nvls``, ``nvls_tree``, ``collnet_direct``, ``collnet_chain``, ``pat``,
    ``one_shot``, ``two_shot``, ``multimem``, ``symmetric``."""
    protocol: str | None = None
    """``ll``, ``ll128``, ``simple``."""
    short: str = ""
    """A readable name of at most 60 characters on one line."""


def any_of(words: str) -> re.Pattern[str]:
    """A pattern for any of `words`, which are patterns without spaces."""
    return pattern("|".join(words.split()))


KV_CACHE = any_of(
    """reshape_and_cache store_?kv (?:concat|write)_and_cache kv_?(?:cache_)?(?:write|store|copy)
    set_\\w{0,20}kv_buffer"""
)
ATTENTION = any_of(
    """sdpa fmha attention flash_(?:fwd|bwd|attn|mla|decode) flash::flash_ flashattn
    (?:^|_|::)attn(?:_|\\Z) (?:^|_)mha_ (?:^|_|::)mla_ _mla(?:_|\\Z) paged_attn
    _attend_ker (?:^|_|::)pa_(?:fwd|decode|bf16|fp8|prefill|mqa)
    (?:prefill|decode)with\\w{0,20}kv mergestate merge_state merge_attn compute_dot_do_o
    convert_dq_to mqa_logits
    (?:^|_)bwd_kernel_(?:fuse|dk|dq) (?:^|_)bwd_preprocess fwd_kernel_stage[12]
    _fwd_grouped_kernel \\bfa_(?:fwd|bwd) fwd_fp8_256t
    gated_delta linear_attn chunk_(?:fwd|bwd|scan|state|gla) mamba(?!\\w*::selective_scan)
    (?:^|_|::)sage_(?:fwd|bwd|attn)"""
)
CONVOLUTION = any_of(
    """implicit_?gemm convolve convolution (?:^|_|::|\\d)conv(?:[123]d|_|\\Z)
    (?:grouped|depthwise|naive|direct)_?conv conv_kernel conv::kernel cudnn::cnn:: scudnn hcudnn
    fprop dgrad wgrad winograd im2col im2d2col col2im bwd_weight bwd_data
    igemm_(?:fwd|bwd|wrw) asmconv convdirect compute\\w{0,12}offsetskernel fft2d_"""
)


def _table(text: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The names in `text`, each with a pattern of the words after it: those of its line, and of
    lines after it that are indented further."""
    entries = re.sub(r"\n {8}", " ", text.strip()).splitlines()
    parts = (entry.strip().partition(": ") for entry in entries)
    return tuple((name, any_of(words)) for name, _, words in parts)


def _kinds(text: str) -> tuple[tuple[KernelKind, re.Pattern[str]], ...]:
    return tuple((KernelKind(name), words) for name, words in _table(text))


FAMILIES = _table(
    r"""
    pytorch: at:: c10:: cunn_ softmax_warp_ elementwise_kernel_with_index
    rocprim: rocprim::
    cub: (?:\w{1,30}::)?cub:: thrust::
    cudnn: cudnn cask \w{0,30}scudnn nhwctonchw nchwtonhwc fft2d_ (?:im|ex|pre)\w{3,9}_convolve
        wgrad_alg
    cublaslt: cublaslt epilogue::impl::
    cublas: cublas scal_kernel
    fbgemm: fbgemm split_embedding permute_pooled bounds_check linearize_ recat_copy
    aiter: aiter
    ck: ck(?:_tile)?::
    deep_gemm: deep_gemm::
    miopen: miopen batched_transpose_ subtensorop transpose_(?:nchw|cnhw) igemm_ naive_conv_
        im2d2col col2im2d
    triton: triton_ create_flashinfer
    vllm: vllm:: paged_attention rotary_embedding_kernel
    sglang: sgl
    flashinfer: flashinfer::
    flash_attention: flash:: pytorch_flash::
    transformer_engine: transformer_engine
    trtllm: tensorrt_llm fmhasm
    thunderkittens: kittens::
    apex: multi_tensor_apply_kernel cuapply cuwelford
    cutlass3: cutlass::device_kernel
    rocclr: __amd_rocclr
    """
)
"""Libraries by the beginning of the function's name."""

DRIVERS = any_of("elementwise multi_tensor_apply foreach")
"""Functions that apply another function, which determines what they do."""

APPLIED = _kinds(
    r"""
    optimizer: adam sgdmath fusedsgd adagrad lamb(?:functor|stage|_) larsf rmsprop optimizer
        novograd
    embedding: gpu_index_kernel index_kernel_impl index_(?:put|fill|copy) scatter
    reduction: lpnormfunctor l2normfunctor maxnorm
    random: distribution_ uniform_and_transform normal_and_transform bernoulli dropout
    fill: fillfunctor zerofunctor
    copy: copy_kernel copy_device_to_device [<:\s]copy[<,>] copyfunctor \[\w{0,20}copy
    """
)

FUNCTIONS = _kinds(
    r"""
    softmax: softmax
    normalisation: (?:layer|batch|group|instance|rms|l2|add|fused|gated|qk)_?norm norm_?kernel
        _norm_ bn_(?:fw|bw) gammabeta rowwisemoments cuapplylayernorm cucomputegradinput
    optimizer: adam adagrad lamb_ sgd_ optimizer
    sort: sort top_?k searchsorted kthvalue unique moe_align align_block_size merge_mergepath
        merge_oddeven partition_kernel deviceselect onesweep histogram
    embedding: embedding_(?:bag|dense|backward|forward|codegen|feature|lookup|renorm)
        split_embedding (?<!rotary_)embedding_kernel index_?select gather scatter indexfunc
        index_(?:add|put) indexing_backward linearize_index compute_grad_weight krn_partial
        segment_offset num_of_partial_segments bounds_check_indices permute_pooled_embs
        to_dense_representation lookup_table expandinputrows
    random: random philox curand rocrand dropout distribution_ bernoulli multinomial sampling
        generate_seed
    fill: fill_ _fill fillbuffer memset zero_ setzero zerokernel settensor clear_ initheap
        subtensoropwithscalar
    copy: copy transpose catarray chunk_cat nchwtonhwc nhwctonchw nchw2 nhwc2 cnhw2 permute
        pack_?kernel repack pad_ padding transform_kernel compute_position kv_indices kv_indptr
        reshape split_with split_kernel roll_cuda flip_ tensortransform subtensoropwithcast
        concat as_strided unfold tril triu reorder swizzle shuffle kvcache
    reduction: reduce reduction pool scan selective_state_update cumsum cumprod prefix_sum
        lpnorm lpmax loss classnll cross_entropy sum_and sumkernel (?:^|_|::)sum(?:_|\Z) argmax
        argmin (?:^|_)(?:max|min|mean|norm|amax|absmax)_ welford segment logsumexp devicecompact
        all_equal adaptive_average
    elementwise: pointwise activation act_and_mul silu gelu relu swiglu sigmoid tanh rotary rope
        _mul_ _add_ add_ mul_ bias clamp quant cast scale scal_kernel axpy convert cvt upsample
        interpolate threshold where arange eye_ linspace globalkernel addition_ subtract_
        multiply_ divide_ vecadd vectoradd vector_add optensor op_tensor float_to reconstruct_
        to_float qparam offsets_range compute_cuda_kernel resolve_ masked hfp8 lerp
    """
)
"""Kinds by the function's name; the first match applies."""


_SPELLINGS: dict[str, str] = {
    "f64": "fp64 double float64 d",
    "f32": "fp32 float float32 s f32_r",
    "tf32": "tfloat32_t tfloat32 xf32",
    "f16": "fp16 half __half half_t float16 _float16 f16_t h",
    "bf16": "bfloat16 bfloat16_t __nv_bfloat16 nv_bfloat16 __hip_bfloat16 hip_bfloat16 __bf16 "
    "bhalf bhalf_t bf16_t rccl_bfloat16",
    "e4m3": "f8e4m3 fp8 f8 e4m3fn float_e4m3_t __nv_fp8_e4m3 float8_e4m3fn __hip_fp8_e4m3 f8_t "
    "fp8_t mxfp8 mxf8 f8_ocp_t fp8e4nv rccl_float8",
    "e5m2": "f8e5m2 bf8 b8 float_e5m2_t __nv_fp8_e5m2 float8_e5m2 __hip_fp8_e5m2 bf8_t bf8_ocp_t "
    "fp8e5 rccl_bfloat8",
    "e4m3fnuz": "f8_fnuz_t float8_e4m3fnuz __hip_fp8_e4m3_fnuz fp8e4b8",
    "e5m2fnuz": "bf8_fnuz_t float8_e5m2fnuz __hip_fp8_e5m2_fnuz fp8e5b16",
    "e2m1": "f4 fp4 mxf4 mxfp4 nvf4 nvfp4 float_e2m1_t f4x2_pk_t __nv_fp4_e2m1",
    "s8": "i8 int8 int8_t char",
    "u8": "uint8 uint8_t",
    "s32": "i32 int32 int32_t int",
    "u32": "uint32 uint32_t",
    "s64": "i64 int64 int64_t long",
    "u64": "uint64 uint64_t",
    "c64": "cf32 c",
    "c128": "cf64 z",
}

FORMATS: Mapping[str, str] = {
    spelling: name for name, texts in _SPELLINGS.items() for spelling in (name, *texts.split())
}

_TYPE = pattern(r"(?<![\w:])(?:\w{1,40}::){0,4}(unsigned short|\w{1,40})(?: const)?(?=\s*[,>*])")


def number_format(spelling: str) -> str | None:
    """Name in gemmetry of a format in any library's spelling; None if it is not a format."""
    return FORMATS.get(spelling.rpartition("::")[2].strip().lower())


def format_arguments(text: str, *, bf16_as_ushort: bool = False) -> list[str]:
    """The number formats among the template arguments in `text`, in order.

    Integer types (``int``, ``long`` ...) are left out: in kernel names they are index types.

    Args:
        text: arguments in C++ spelling.
        bf16_as_ushort: Composable Kernel spells bfloat16 ``unsigned short``.
    """
    found = []
    for match in _TYPE.finditer(text):
        spelling = match.group(1)
        if spelling == "unsigned short":
            name = "bf16" if bf16_as_ushort else None
        elif len(spelling) < 3 or spelling in ("int", "long", "char"):
            continue
        else:
            name = number_format(spelling)
        if name is not None:
            found.append(name)
    return found
