"""The work of operators: the FLOP and bytes of a call, from its arguments.

There is one entry per family: which operators belong to it, and how to derive parameters, FLOP and
bytes from the arguments of a call. Sheets, parameters and amounts are those of TraceLens
(AMD-AGI/TraceLens 171dd747), corrected where they differ from the operator's actual work
(``docs/trace-report.md``). The positions of arguments are those of PyTorch's native functions
(``aten/src/ATen/native/native_functions.yaml``).

Normalizations of n elements with c channels (the second dimension for batches, groups and
instances, else the normalized sizes) have these FLOP:

- forward: 2·n to scale and shift, 6·c for the factors, and 3·n for mean and variance if they are
  computed and not given;
- forward by the mean square: 2·n and 2 a vector for the mean, n to scale, n more for weights;
- backward: 4·n for the sums, and of the input's gradient 5·n, or 2·n if mean and variance are
  given, when 3·c are needed for the factor;
- backward by the mean square: n, n more for weights, 6·n for the input's gradient and 2·n for that
  of the weights (n where there is one vector).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gemmetry.formats.events import MOST_ELEMENTS, OperatorArguments
from gemmetry.traces.collectives.summary import ELEMENT_BYTES, element_type
from gemmetry.traces.joins import decoded_list
from gemmetry.traces.operators.gemms import OPERAND_PLACES, GemmShape, packed_in, tensor_format

_MOST_DIMENSIONS = 64
"""PyTorch's own limit."""


_SCALAR_BYTES = 4
"""Bytes of a Python number among the arguments, as TraceLens counts them."""


_TRUE = ("True", "true")


class MissingArgumentError(Exception):
    """The arguments do not specify what the call does, or are inconsistent."""


class Amounts(NamedTuple):
    """Work and traffic of a call."""

    parameters: tuple[tuple[str, Any], ...]
    flops: int
    bytes: int | None
    dtype: str | None
    """Type that the call computes in, as spelled in the trace."""


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments by position; methods raise :class:`MissingArgumentError` where they are missing."""

    name: str
    shapes: list[Any]
    dtypes: list[Any]
    strides: list[Any]
    values: list[Any]

    @staticmethod
    def decoded(name: str, arguments: OperatorArguments) -> Call:
        """A call of the operator `name`."""
        texts = (arguments.shapes, arguments.dtypes, arguments.strides, arguments.values)
        return Call(name, *map(decoded_list, texts))

    def has(self, place: int) -> bool:
        """Whether there is a tensor with dimensions at `place`."""
        return bool(_list_at(self.shapes, place))

    def shape(self, place: int) -> tuple[int, ...]:
        """Sizes of a tensor."""
        found = _list_at(self.shapes, place)
        if found is None or len(found) > _MOST_DIMENSIONS:
            raise MissingArgumentError
        if not all(type(size) is int and 0 <= size <= MOST_ELEMENTS for size in found):
            raise MissingArgumentError
        return tuple(found)

    def stride(self, place: int) -> tuple[int, ...] | None:
        """Strides of a tensor, in elements; None where they are missing."""
        found = _list_at(self.strides, place)
        if found is None or len(found) > _MOST_DIMENSIONS:
            return None
        known = all(type(size) is int and abs(size) < 2**63 for size in found)
        return tuple(found) if known else None

    def dtype(self, place: int) -> str | None:
        """Type of a tensor, as spelled in the trace."""
        return _text_at(self.dtypes, place) or None

    def width(self, place: int) -> int | None:
        """Bytes of an element; None where the type is missing."""
        dtype = self.dtype(place)
        if dtype == "Scalar":
            return _SCALAR_BYTES
        return ELEMENT_BYTES.get(element_type(dtype) or "")

    def value(self, place: int) -> str:
        """A value that is not a tensor, as written in the trace; "" where it is missing."""
        return _text_at(self.values, place)

    def number(self, place: int) -> int:
        """An integer."""
        return _integer(self.value(place))

    def real(self, place: int) -> float:
        """A number; 0 where it is missing."""
        try:
            return float(self.value(place) or 0)
        except ValueError:
            raise MissingArgumentError from None

    def flag(self, place: int) -> bool:
        """A boolean; false where it is missing."""
        return self.value(place) in _TRUE

    def flags(self, place: int, count: int) -> tuple[bool, ...]:
        """`count` booleans; all true where they are missing."""
        text = self.value(place)
        if not text:
            return (True,) * count
        found = tuple(part in _TRUE for part in _parts(text))
        if len(found) != count:
            raise MissingArgumentError
        return found

    def list_of_numbers(self, place: int) -> tuple[int, ...]:
        """Integers: ``[14, 14]``."""
        parts = _parts(self.value(place))
        if len(parts) > _MOST_DIMENSIONS:
            raise MissingArgumentError
        return tuple(map(_integer, parts))

    def numbers(self, place: int, count: int, usual: int) -> tuple[int, ...]:
        """`count` integers; a single one is repeated, and none means `usual`."""
        found = self.list_of_numbers(place) if self.value(place) else ()
        if len(found) < 2:
            return (found or (usual,)) * count
        if len(found) != count:
            raise MissingArgumentError
        return found


def _list_at(found: list[Any], place: int) -> list[Any] | None:
    one = found[place] if place < len(found) else None
    return one if isinstance(one, list) else None


def _text_at(found: list[Any], place: int) -> str:
    one = found[place] if place < len(found) else None
    return one if isinstance(one, str) else ""


def elements(shape: tuple[int, ...]) -> int:
    """The number of elements of a tensor.

    Raises:
        MissingArgumentError: the sizes are impossible.
    """
    count = math.prod(shape)
    if count > MOST_ELEMENTS or min(shape, default=0) < 0:
        raise MissingArgumentError
    return count


def _parts(text: str) -> list[str]:
    if not text.startswith("[") or not text.endswith("]"):
        raise MissingArgumentError
    inside = text[1:-1].strip()
    return [part.strip() for part in inside.split(",")] if inside else []


def _integer(text: str) -> int:
    # Longer digit strings are damage, and Python rejects the longest of them.
    try:
        found = int(text) if len(text) < 20 else None
    except ValueError:
        found = None
    if found is None or abs(found) > MOST_ELEMENTS:
        raise MissingArgumentError
    return found


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


def attention(call: Call, *, backward: bool = False) -> Amounts:
    """Work of attention: two products, halved by a causal mask.

    Backward has four products, or five where the scores are recomputed (`flash_impl`); where
    several heads of Q share one of K and V, their gradients are summed.
    """
    places = _PLACES[call.name]
    shapes = [call.shape(places.query + place) for place in range(3)]
    if any(len(shape) != 4 for shape in shapes):
        raise MissingArgumentError
    order = (0, places.heads, 3 - places.heads, 3)
    (b, h_q, n_q, d_qk), (b_k, h_kv, n_kv, d_k), (b_v, h_v, n_v, d_v) = (
        tuple(shape[place] for place in order) for shape in shapes
    )
    if not (b == b_k == b_v and h_kv == h_v and n_kv == n_v and d_qk == d_k) or h_kv < 1:
        raise MissingArgumentError
    for shape in shapes:
        elements(shape)
    causal = call.flag(places.causal)
    # Libraries align a causal mask on unequal lengths differently.
    if causal and n_q != n_kv:
        raise MissingArgumentError
    flops = 2 * b * h_q * n_q * n_kv * (d_qk + d_v)
    moved = b * (n_q * h_q + n_kv * h_kv) * (d_qk + d_v)
    if backward:
        flops += 2 * b * h_q * n_q * n_kv * (d_v + (1 + places.flash) * d_qk)
        flops += b * n_kv * (h_q // h_kv - 1) * (d_qk + d_v)
        # Read: Q, K, V and the gradient of the result; written: the gradients of Q, K and V.
        moved += b * (n_q * h_q * d_qk + n_kv * h_kv * (d_qk + d_v))
    width, dtype = call.width(places.query), call.dtype(places.query)
    return Amounts(
        (
            ("B", b), ("N_Q", n_q), ("H_Q", h_q), ("N_KV", n_kv), ("H_KV", h_kv), ("d_h_qk", d_qk),
            ("d_h_v", d_v), ("dropout", call.real(places.dropout)), ("causal", causal),
            ("flash_impl", places.flash), ("dtype_A_B", (dtype, call.dtype(places.query + 1))),
        ),
        flops // 2 if causal else flops, None if width is None else moved * width, dtype,
    )  # fmt: skip


class _NormalizationPlaces(NamedTuple):
    """Positions of a call's arguments; None: the call does not have the argument."""

    input: int
    weight: int | None
    bias: int | None
    normalized: int | None = None
    """The normalized sizes; None: the channels are the second dimension."""
    training: int | None = None
    """Whether mean and variance are computed; None: they always are."""
    wanted: int | None = None
    """Argument with the flags of the requested gradients."""
    gradients: int = 3
    is_backward: bool = False
    by_mean_square: bool = False


def _aten(*names: str) -> tuple[str, ...]:
    return tuple(f"aten::{name}" for name in names)


NORMALIZATIONS = {
    name: places
    for places, names in (
        (_NormalizationPlaces(0, 1, 2, training=5), _aten(
            "batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm",
            "instance_norm",
        )),
        (_NormalizationPlaces(0, 2, 3, normalized=1), _aten("layer_norm", "native_layer_norm")),
        (_NormalizationPlaces(0, 2, 3), _aten("group_norm")),
        (_NormalizationPlaces(0, 1, 2), _aten("native_group_norm")),
        (_NormalizationPlaces(0, 2, None, normalized=1, by_mean_square=True),
         _aten("_fused_rms_norm")),
        (_NormalizationPlaces(1, 2, None, training=7, wanted=9, is_backward=True),
         _aten("native_batch_norm_backward")),
        # Operators that are called only after training, and have no mask.
        (_NormalizationPlaces(0, 2, None, is_backward=True),
         _aten("cudnn_batch_norm_backward", "miopen_batch_norm_backward")),
        (_NormalizationPlaces(1, None, None, normalized=2, wanted=7, is_backward=True),
         _aten("native_layer_norm_backward")),
        (_NormalizationPlaces(1, 4, None, wanted=9, is_backward=True),
         _aten("native_group_norm_backward")),
        (_NormalizationPlaces(1, 4, None, normalized=2, wanted=5, gradients=2, is_backward=True,
                              by_mean_square=True), _aten("_fused_rms_norm_backward")),
    )
    for name in names
}  # fmt: skip
"""Operator -> positions of its arguments."""


def normalization(call: Call) -> Amounts:
    """Forward or backward, by the operator's name."""
    places = NORMALIZATIONS[call.name]
    shape = call.shape(places.input)
    n = elements(shape)
    if places.normalized is not None:
        c = elements(call.list_of_numbers(places.normalized))
    else:
        c = shape[1] if len(shape) > 1 else 0
    if c < 1 or n % c:
        raise MissingArgumentError
    wanted = (True,) * places.gradients
    if places.wanted is not None:
        wanted = call.flags(places.wanted, places.gradients)
    affine = wanted[1] if places.weight is None else call.has(places.weight)
    if places.by_mean_square:
        bias = False
    elif places.is_backward:
        bias = wanted[2]
    else:
        bias = places.bias is not None and call.has(places.bias)
    training = not places.by_mean_square and (places.training is None or call.flag(places.training))
    if places.by_mean_square:
        flops, moved = _by_mean_square(n, c, affine, wanted if places.is_backward else None)
    elif places.is_backward:
        flops, moved = _backward(n, c, affine, bias, training, wanted[0])
    else:
        flops = (5 if training else 2) * n + 6 * c
        # Mean and variance are read, and written where they are computed.
        moved = 2 * n + c * (2 + affine + (affine and bias) + 2 * training)
    width, dtype = call.width(places.input), call.dtype(places.input)
    return Amounts(
        (
            ("op_shape", shape), ("dtype_in_out", (dtype, None)),
            ("stride_input", call.stride(places.input)), ("stride_output", None),
            ("num_channels", c), ("has_bias", bias), ("is_affine", affine),
            ("is_training", training),
            ("output_mask", repr(list(wanted)) if places.is_backward else None),
        ), flops, None if width is None else moved * width, dtype,
    )  # fmt: skip


def _backward(
    n: int, c: int, affine: bool, bias: bool, training: bool, of_input: bool
) -> tuple[int, int]:
    """FLOP and moved elements of the forward pass."""
    flops = 4 * n
    if of_input:
        flops += (5 if training else 2) * n
    if not training:
        flops += 3 * c
    moved = n * (3 if of_input and training else 2)
    moved += c * (training + affine * (1 + training * (1 + bias)))
    return flops, moved


def _by_mean_square(
    n: int, c: int, affine: bool, wanted: tuple[bool, ...] | None
) -> tuple[int, int]:
    """The same; `wanted` is None forward."""
    vectors = n // c
    if wanted is None:
        return 2 * n + 2 * vectors + n * (1 + affine), 2 * n + c * affine
    flops = n * (1 + affine + 6 * wanted[0])
    if wanted[1] and affine:
        flops += n * (1 + (vectors > 1))
    return flops, 3 * n + 2 * c * affine


_FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "s8": "int8", "u8": "uint8",
            "s16": "int16", "s32": "int32", "s64": "int64",
            "e4m3": "fp8", "e5m2": "fp8", "e2m1": "fp4"}  # fmt: skip
"""Element types in TraceLens' ``Compute Spec``, where they differ from gemmetry's names."""


MIB = 1 << 20


class OperatorModel(NamedTuple):
    """The FLOP and bytes of one call of an operator."""

    sheet: str
    """Sheet of TraceLens' report."""
    parameters: tuple[tuple[str, Any], ...]
    """Name and value of its columns ``param: ...``."""
    flops: int
    bytes: int | None
    """Bytes; None where the types are missing."""
    spec: str | None
    """``matrix_bf16``."""

    @property
    def gflops(self) -> float:
        """:attr:`flops` in 10⁹."""
        return self.flops / 1e9

    @property
    def mebibytes(self) -> float | None:
        """:attr:`bytes` in 2²⁰."""
        return None if self.bytes is None else self.bytes / MIB

    @property
    def intensity(self) -> float | None:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def cells(self) -> dict[str, Any]:
        """The parameters as cells of a sheet: lists of numbers as texts."""
        return {name: repr(value) if isinstance(value, tuple) else value
                for name, value in self.parameters}  # fmt: skip

    @property
    def params(self) -> str:
        """The parameters as a Python literal."""
        return repr(dict(self.parameters))


def compute_spec(unit: str, dtype: str | None) -> str | None:
    """``matrix_bf16``; None where the type is missing.

    Args:
        unit: ``matrix`` or ``vector``.
        dtype: gemmetry's name of the element type.
    """
    return None if dtype is None else f"{unit}_{_FORMATS.get(dtype, dtype)}"


def _convolved(call: Call, first: int) -> Amounts:
    """`first` is the position of the input; the result's gradient is before it.

    Each gradient, of input and of weights, takes as many FLOP as the forward pass, whose result is
    not among the arguments; only requested gradients count.
    """
    x, w = call.shape(first), call.shape(first + 1)
    spatial = len(x) - 2
    if not 1 <= spatial <= 3 or len(w) != len(x):
        raise MissingArgumentError
    stride, padding, dilation, more = (
        call.numbers(first + place, spatial, usual)
        for place, usual in ((3, 1), (4, 0), (5, 1), (7, 0))
    )
    transposed, groups = call.flag(first + 6), call.number(first + 8)
    if min(*stride, groups, 1) < 1:
        raise MissingArgumentError
    sizes = []
    for size, window, step, pad, apart, extra in zip(
        x[2:], w[2:], stride, padding, dilation, more, strict=True
    ):
        reach = apart * (window - 1) + 1
        sizes.append(
            (size - 1) * step - 2 * pad + reach + extra if transposed
            else (size + 2 * pad - reach) // step + 1
        )  # fmt: skip
    channels = w[1] * groups if transposed else w[0]
    out = (x[0], channels, *sizes)
    n_x, n_w, n_out = elements(x), elements(w), elements(out)
    product = 2 * elements(w[1:]) * (n_x if transposed else n_out)
    if first:
        wanted = call.flags(first + 9, 3)
        bias = wanted[2]
        gradients = wanted[0] + wanted[1]
        flops = gradients * product + bias * n_out
        moved = gradients * (n_x + n_w + n_out) + bias * (n_out + channels)
    else:
        bias = call.has(2)
        flops = product + bias * n_out
        moved = n_x + n_w + n_out + bias * channels
    dtypes = call.dtype(first), call.dtype(first + 1)
    width = call.width(first) if dtypes[0] == dtypes[1] else None
    return Amounts(
        (
            ("convNd", f"conv{spatial}d"), ("input_shape", x), ("filter_shape", w),
            ("dtype_input_weight", dtypes), ("input_stride", call.stride(first)),
            ("weight_stride", call.stride(first + 1)), ("bias", bias), ("stride", stride),
            ("padding", padding), ("dilation", dilation), ("transposed_conv", transposed),
            ("output_padding", more), ("groups", groups),
        ), flops, None if width is None else moved * width, dtypes[0],
    )  # fmt: skip


def _unary(call: Call) -> Amounts:
    """One FLOP per element, including copies; the second tensor, if there is one, is the
    destination or source."""
    return _one_to_one(call, call.shape(0), 1 if call.has(1) else None)


def _one_to_one(call: Call, shape: tuple[int, ...], other: int | None) -> Amounts:
    """The first tensor, and one of `shape` with the type of the argument `other`; None: that of the
    first one, and unknown."""
    width, count = call.width(0), elements(shape)
    written_as = None if other is None else call.dtype(other)
    written = width if other is None else call.width(other)
    read = elements(call.shape(0))
    return Amounts(
        (
            ("op_shape", shape), ("dtype_in_out", (call.dtype(0), written_as)),
            ("stride_input", call.stride(0)),
            ("stride_output", call.stride(other) if other else None),
        ),
        count, None if width is None or written is None else read * width + count * written,
        call.dtype(0),
    )  # fmt: skip


def _replication_pad(call: Call) -> Amounts:
    """The result is larger by the paddings, which are listed from the last dimension on."""
    shape, padding = list(call.shape(0)), call.list_of_numbers(1)
    if len(padding) % 2 or len(padding) // 2 > len(shape):
        raise MissingArgumentError
    for place, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        shape[-1 - place] += before + after
    found = _one_to_one(call, tuple(shape), 0)
    return _resized(call, found, tuple(shape), ("padding", padding))


def _upsample(call: Call) -> Amounts:
    shape = (*call.shape(0)[:2], *call.list_of_numbers(1))
    return _resized(call, _one_to_one(call, shape, 0), shape)


def _resized(call: Call, found: Amounts, shape: tuple[int, ...], *more: tuple[str, Any]) -> Amounts:
    """Both sizes are recorded where the result has another size."""
    sizes = (("input_shape", call.shape(0)), ("output_shape", shape))
    return found._replace(parameters=(*found.parameters, *sizes, *more))


def _binary(call: Call) -> Amounts:
    """One FLOP per element of the result, which has the wider type unless the call has a third
    tensor for it."""
    first, second = call.shape(0), call.shape(1)
    out = _broadcast(first, second)
    third = 2 if call.has(2) else None
    widths = [call.width(0), call.width(1)]
    known = [width for width in widths if width is not None]
    size = None
    if len(known) == 2:
        n = elements(first), elements(second), elements(out)
        if third is not None:
            result = call.width(third)
        elif bool(first) != bool(second):
            result = known[0] if first else known[1]
        else:
            result = max(known) if first else known[0]
        if result is not None:
            size = n[0] * known[0] + n[1] * known[1] + n[2] * result
    dtypes = (call.dtype(0), call.dtype(1), None if third is None else call.dtype(third))
    return Amounts(
        (
            ("shape_in1", first), ("shape_in2", second), ("dtype_in1_in2_out", dtypes),
            ("stride_input1", call.stride(0)), ("stride_input2", call.stride(1)),
            ("stride_output", None if third is None else call.stride(third)),
        ), elements(out), size, dtypes[0] if first or not second else dtypes[1],
    )  # fmt: skip


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    longest = max(len(first), len(second))
    pairs = list(zip(
        (1,) * (longest - len(first)) + first, (1,) * (longest - len(second)) + second, strict=True
    ))  # fmt: skip
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise MissingArgumentError
    return tuple(b if a == 1 else a for a, b in pairs)


def _reduce(call: Call) -> Amounts:
    """One FLOP per element read."""
    shape = call.shape(0)
    if call.has(1):
        raise MissingArgumentError  # The maximum of two tensors is not a reduction.
    kept = _kept(call, shape)
    count, results, width = elements(shape), elements(kept), call.width(0)
    kind = next(
        (word for word in ("mean", "max", "min", "norm") if word in call.name.partition("::")[2]),
        "sum",
    )
    return Amounts(
        (
            ("num_input_elems", count), ("num_output_elems", results),
            ("dtype_in_out", (call.dtype(0), None)), ("reduce_type", kind),
        ), count, None if width is None else (count + results) * width, call.dtype(0),
    )  # fmt: skip


def _kept(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of the dimensions that the call does not reduce."""
    if call.name in ("aten::cumsum", "aten::cumprod"):
        return shape
    lists = (n for n in range(1, len(call.values)) if call.value(n).startswith("["))
    dimensions: tuple[int, ...] = ()
    if (place := next(lists, None)) is not None:
        dimensions = call.list_of_numbers(place)
    elif call.name in ("aten::max", "aten::min") and len(call.values) > 2:
        dimensions = (call.number(1),)
    if not dimensions:
        return ()
    gone = {place + len(shape) if place < 0 else place for place in dimensions}
    return tuple(size for place, size in enumerate(shape) if place not in gone)


class _ModelFamily(NamedTuple):
    sheet: str
    unit: str
    model: Callable[[Call], Amounts]
    operators: tuple[str, ...]


_ATTENTION = (
    *(f"aten::_scaled_dot_product_{kind}_attention" for kind in ("cudnn", "efficient", "flash")),
    "FlashAttnFunc", "flash_attn::_flash_attn_forward",
)  # fmt: skip


_ATTENTION_BACKWARD = _ModelFamily(
    "SDPA_bwd", "matrix", partial(attention, backward=True), ("flash_attn::_flash_attn_backward",)
)


_GEMMS = _aten("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")


_REDUCTIONS = _aten("sum", "mean", "max", "min", "norm", "linalg_norm", "std", "var", "logsumexp",
                    "cumsum", "cumprod", "amin", "amax")  # fmt: skip


FAMILIES = (
    _ModelFamily("SDPA_fwd", "matrix", attention, _ATTENTION),
    _ATTENTION_BACKWARD,
    _ModelFamily("CONV_fwd", "matrix", partial(_convolved, first=0), _aten("convolution")),
    _ModelFamily("CONV_bwd", "matrix", partial(_convolved, first=1),
                 _aten("convolution_backward")),
    _ModelFamily("UnaryElementwise", "vector", _unary, _aten(
        "copy", "copy_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_", "sigmoid", "rsqrt",
        "silu", "neg", "pow",
    )),
    _ModelFamily("UnaryElementwise", "vector", _replication_pad, _aten(
        *(f"replication_pad{n}d" for n in (1, 2, 3)),
    )),
    _ModelFamily("UnaryElementwise", "vector", _upsample, _aten(
        *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    )),
    _ModelFamily("BinaryElementwise", "vector", _binary, (*_aten(
        "div", "div_", "mul", "mul_", "add", "add_", "sigmoid_backward", "threshold_backward",
    ), "LigerSiLUMulFunction")),
    _ModelFamily("Normalization", "vector", normalization, tuple(NORMALIZATIONS)),
    _ModelFamily("Reduce_fwd", "vector", _reduce, _REDUCTIONS),
)  # fmt: skip
"""Families of operators other than GEMMs, each with the sheet in which TraceLens reports it."""


_OF: Mapping[str, _ModelFamily] = {name: family for family in FAMILIES for name in family.operators}


_OF_BACKWARD: Mapping[str, _ModelFamily] = {
    "SDPA_fwd": _ATTENTION_BACKWARD,
    "Reduce_fwd": _ModelFamily("Reduce_bwd", "vector", _reduce, ()),
}
"""Models of the backward pass from the forward operator's arguments, by the forward operator's
sheet."""


def has_model(name: str) -> bool:
    """Whether the operator `name` belongs to a family."""
    return name in _OF


def is_reported(name: str) -> bool:
    """Whether TraceLens reports the operator `name` with everything that it launched, instead of
    the operators within it."""
    return name in _OF or name in _GEMMS


def has_backward_model(name: str) -> bool:
    """Whether its arguments determine the work of its backward pass."""
    return name in _OF and _OF[name].sheet in _OF_BACKWARD


def operator_model(
    name: str, arguments: OperatorArguments, *, backward: bool = False
) -> OperatorModel | None:
    """The work of a call of the operator `name`, or of its backward pass; None where its family is
    not known or the arguments do not determine it."""
    family = _OF.get(name)
    if family is not None and backward:
        family = _OF_BACKWARD.get(family.sheet)
    if family is None:
        return None
    try:
        parameters, flops, moved, dtype = family.model(Call.decoded(name, arguments))
    except (MissingArgumentError, OverflowError):
        return None
    spec = compute_spec(family.unit, tensor_format(dtype))
    return OperatorModel(family.sheet, parameters, flops, moved, spec)


_ADDS = ("aten::addmm", "aten::_addmm_activation", "aten::baddbmm", "aten::addbmm", "aten::addmv")


def gemm_model(name: str, arguments: OperatorArguments, shape: GemmShape) -> OperatorModel:
    """The work of a call of the operator `name`; `shape` comes from its arguments.

    The FLOP are 2·B·M·N·K, plus B·M·N for a bias; the bytes are those of operands and result, each
    counted once, with the result as wide as A, or 2 bytes where A has 1.
    """
    call = Call.decoded(name, arguments)
    places = OPERAND_PLACES.get(name, ())
    strides = tuple(call.stride(place) or None for place in places) or (None, None)
    dtypes = tuple(call.dtype(place) for place in places) or (None, None)
    m, n, k, batch, bias = shape.m, shape.n, shape.k, shape.batch, name.removesuffix("_") in _ADDS
    width = call.width(places[0]) if places else None
    moved = None
    if width is not None:
        result = 2 if width == 1 else width
        held = packed_in(dtypes[0])
        moved = batch * (width * (m * k + k * n) // held + width * n * bias + result * m * n)
    return OperatorModel(
        sheet="GEMM",
        parameters=(
            ("M", m), ("N", n), ("K", k), ("bias", bias), ("stride_A", strides[0]),
            ("stride_B", strides[1]), ("dtype_A_B", None if dtypes == (None, None) else dtypes),
            ("B", batch),
        ),
        flops=batch * m * n * (2 * k + bias),
        bytes=moved,
        spec=compute_spec("matrix", shape.dtype and shape.dtype.partition(":")[0]),
    )  # fmt: skip
