"""The words that classify kernels which match no grammar, in lower case, as patterns.

They were collected from the kernel names of PyTorch, cuDNN, MIOpen, CUB, rocPRIM, FBGEMM, vLLM,
SGLang, FlashAttention, FlashInfer and others in real traces.
"""

from __future__ import annotations

import re

from gemmetry.kernel_names.kinds import KernelKind as K
from gemmetry.kernel_names.patterns import pattern


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

FAMILIES = tuple(
    (family, any_of(words))
    for family, words in (
        ("pytorch", "at:: c10:: cunn_ softmax_warp_ elementwise_kernel_with_index"),
        ("rocprim", "rocprim::"),
        ("cub", "(?:\\w{1,30}::)?cub:: thrust::"),
        (
            "cudnn",
            """cudnn cask \\w{0,30}scudnn nhwctonchw nchwtonhwc fft2d_
            (?:im|ex|pre)\\w{3,9}_convolve wgrad_alg""",
        ),
        ("cublaslt", "cublaslt epilogue::impl::"),
        ("cublas", "cublas scal_kernel"),
        ("fbgemm", "fbgemm split_embedding permute_pooled bounds_check linearize_ recat_copy"),
        ("aiter", "aiter"),
        ("ck", "ck(?:_tile)?::"),
        ("deep_gemm", "deep_gemm::"),
        (
            "miopen",
            """miopen batched_transpose_ subtensorop transpose_(?:nchw|cnhw) igemm_ naive_conv_
            im2d2col col2im2d""",
        ),
        ("triton", "triton_ create_flashinfer"),
        ("vllm", "vllm:: paged_attention rotary_embedding_kernel"),
        ("sglang", "sgl"),
        ("flashinfer", "flashinfer::"),
        ("flash_attention", "flash:: pytorch_flash::"),
        ("transformer_engine", "transformer_engine"),
        ("trtllm", "tensorrt_llm fmhasm"),
        ("thunderkittens", "kittens::"),
        ("apex", "multi_tensor_apply_kernel cuapply cuwelford"),
        ("cutlass3", "cutlass::device_kernel"),
        ("rocclr", "__amd_rocclr"),
    )
)
"""Kinds by the beginning of the function's name."""

DRIVERS = any_of("elementwise multi_tensor_apply foreach")
"""Functions that apply another function, which determines what they do."""

APPLIED = tuple(
    (kind, any_of(words))
    for kind, words in (
        (
            K.OPTIMIZER,
            """adam sgdmath fusedsgd adagrad lamb(?:functor|stage|_) larsf rmsprop optimizer
            novograd""",
        ),
        (K.EMBEDDING, "gpu_index_kernel index_kernel_impl index_(?:put|fill|copy) scatter"),
        (K.REDUCTION, "lpnormfunctor l2normfunctor maxnorm"),
        (
            K.RANDOM,
            "distribution_ uniform_and_transform normal_and_transform bernoulli dropout",
        ),
        (K.FILL, "fillfunctor zerofunctor"),
        (K.COPY, "copy_kernel copy_device_to_device [<:\\s]copy[<,>] copyfunctor \\[\\w{0,20}copy"),
    )
)

FUNCTIONS = tuple(
    (kind, any_of(words))
    for kind, words in (
        (K.SOFTMAX, "softmax"),
        (
            K.NORMALISATION,
            """(?:layer|batch|group|instance|rms|l2|add|fused|gated|qk)_?norm norm_?kernel _norm_
            bn_(?:fw|bw) gammabeta rowwisemoments cuapplylayernorm cucomputegradinput""",
        ),
        (K.OPTIMIZER, "adam adagrad lamb_ sgd_ optimizer"),
        (
            K.SORT,
            """sort top_?k searchsorted kthvalue unique moe_align align_block_size
            merge_mergepath merge_oddeven partition_kernel deviceselect onesweep histogram""",
        ),
        (
            K.EMBEDDING,
            """embedding_(?:bag|dense|backward|forward|codegen|feature|lookup|renorm)
            split_embedding (?<!rotary_)embedding_kernel index_?select gather scatter indexfunc
            index_(?:add|put) indexing_backward linearize_index compute_grad_weight krn_partial
            segment_offset num_of_partial_segments bounds_check_indices permute_pooled_embs
            to_dense_representation lookup_table expandinputrows""",
        ),
        (
            K.RANDOM,
            """random philox curand rocrand dropout distribution_ bernoulli multinomial sampling
            generate_seed""",
        ),
        (
            K.FILL,
            """fill_ _fill fillbuffer memset zero_ setzero zerokernel settensor clear_ initheap
            subtensoropwithscalar""",
        ),
        (
            K.COPY,
            """copy transpose catarray chunk_cat nchwtonhwc nhwctonchw nchw2 nhwc2 cnhw2 permute
            pack_?kernel repack pad_ padding transform_kernel compute_position kv_indices kv_indptr
            reshape split_with split_kernel roll_cuda flip_ tensortransform subtensoropwithcast
            concat as_strided unfold tril triu reorder swizzle shuffle kvcache""",
        ),
        (
            K.REDUCTION,
            """reduce reduction pool scan selective_state_update cumsum cumprod prefix_sum lpnorm
            lpmax loss classnll cross_entropy sum_and sumkernel (?:^|_|::)sum(?:_|\\Z) argmax argmin
            (?:^|_)(?:max|min|mean|norm|amax|absmax)_ welford segment logsumexp
            devicecompact all_equal adaptive_average""",
        ),
        (
            K.ELEMENTWISE,
            """pointwise activation act_and_mul silu gelu relu swiglu sigmoid tanh rotary rope
            _mul_ _add_ add_ mul_ bias clamp quant cast scale scal_kernel axpy convert cvt
            upsample interpolate threshold where arange eye_ linspace globalkernel addition_
            subtract_ multiply_ divide_ vecadd vectoradd vector_add optensor op_tensor float_to
            reconstruct_ to_float qparam offsets_range compute_cuda_kernel resolve_ masked hfp8
            lerp""",
        ),
    )
)
"""Kinds by the function's name; the first match applies."""
