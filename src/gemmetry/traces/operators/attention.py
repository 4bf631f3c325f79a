"""Attention: softmax(Q·Kᵀ)·V, and its gradients."""

from __future__ import annotations

from typing import NamedTuple

from gemmetry.traces.call_arguments import Amounts, Call, MissingArgumentError, elements


class _AttentionPlaces(NamedTuple):
    """Positions of a call's arguments."""

    query: int
    heads: int
    """Dimension of heads: 1 in (batch, heads, length, size), 2 in (batch, length, heads, size)."""
    dropout: int
    causal: int
    flash: bool


_PLACES = {
    "aten::_scaled_dot_product_flash_attention": _AttentionPlaces(0, 1, 3, 4, True),
    "aten::_scaled_dot_product_efficient_attention": _AttentionPlaces(0, 1, 5, 6, False),
    "aten::_scaled_dot_product_cudnn_attention": _AttentionPlaces(0, 1, 5, 6, False),
    "FlashAttnFunc": _AttentionPlaces(0, 2, 3, 5, True),
    "flash_attn::_flash_attn_forward": _AttentionPlaces(0, 2, 3, 5, True),
    "flash_attn::_flash_attn_backward": _AttentionPlaces(1, 2, 9, 11, True),
}


class _Sizes(NamedTuple):
    batch: int
    n_q: int
    h_q: int
    n_kv: int
    h_kv: int
    d_qk: int
    d_v: int


def attention(call: Call) -> Amounts:
    """Two products: half of them where the mask is causal."""
    places, sizes = _sizes(call)
    batch, n_q, h_q, n_kv, h_kv, d_qk, d_v = sizes
    flops = 2 * batch * h_q * n_q * n_kv * (d_qk + d_v)
    moved = batch * (n_q * h_q + n_kv * h_kv) * (d_qk + d_v)
    return _amounts(call, places, sizes, flops, moved)


def attention_backward(call: Call) -> Amounts:
    """Four products, or five where the scores are recomputed (`flash_impl`); where several heads of
    Q share one of K and V, their gradients are summed."""
    places, sizes = _sizes(call)
    batch, n_q, h_q, n_kv, h_kv, d_qk, d_v = sizes
    pairs = 2 * batch * h_q * n_q * n_kv
    shared = batch * n_kv * (h_q // h_kv - 1)
    flops = pairs * (2 * d_v + (2 + places.flash) * d_qk) + shared * (d_qk + d_v)
    # Read: Q, K, V and the gradient of the result; written: the gradients of Q, K and V.
    moved = batch * (n_q * h_q * (2 * d_qk + d_v) + 2 * n_kv * h_kv * (d_qk + d_v))
    return _amounts(call, places, sizes, flops, moved)


def _sizes(call: Call) -> tuple[_AttentionPlaces, _Sizes]:
    places = _PLACES[call.name]
    shapes = [call.shape(places.query + place) for place in range(3)]
    if any(len(shape) != 4 for shape in shapes):
        raise MissingArgumentError
    order = (0, places.heads, 3 - places.heads, 3)
    (b, h_q, n_q, d_q), (b_k, h_k, n_k, d_k), (b_v, h_v, n_v, d_v) = (
        tuple(shape[place] for place in order) for shape in shapes
    )
    if not (b == b_k == b_v and h_k == h_v and n_k == n_v and d_q == d_k) or h_k < 1:
        raise MissingArgumentError
    for shape in shapes:
        elements(shape)
    return places, _Sizes(b, n_q, h_q, n_k, h_k, d_q, d_v)


def _amounts(
    call: Call, places: _AttentionPlaces, sizes: _Sizes, flops: int, moved: int
) -> Amounts:
    causal = call.flag(places.causal)
    # Libraries align a causal mask on unequal lengths differently.
    if causal and sizes.n_q != sizes.n_kv:
        raise MissingArgumentError
    width, dtype = call.width(places.query), call.dtype(places.query)
    return Amounts(
        (
            ("B", sizes.batch), ("N_Q", sizes.n_q), ("H_Q", sizes.h_q), ("N_KV", sizes.n_kv),
            ("H_KV", sizes.h_kv), ("d_h_qk", sizes.d_qk), ("d_h_v", sizes.d_v),
            ("dropout", call.real(places.dropout)), ("causal", causal),
            ("flash_impl", places.flash),
            ("dtype_A_B", (dtype, call.dtype(places.query + 1))),
        ),
        flops // 2 if causal else flops, None if width is None else moved * width, dtype,
    )  # fmt: skip
