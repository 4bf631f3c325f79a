"""Normalizations: of batches, layers, groups and instances, by the mean square, and backward.

With n elements and c channels (the second dimension for batches, groups and instances, else the
normalized sizes), the FLOP are

- forward: 2·n to scale and shift, 6·c for the factors, and 3·n for mean and variance if they are
  computed and not given;
- forward by the mean square: 2·n and 2 a vector for the mean, n to scale, n more for weights;
- backward: 4·n for the sums, and of the input's gradient 5·n, or 2·n if mean and variance are
  given, when 3·c are needed for the factor;
- backward by the mean square: n, n more for weights, 6·n for the input's gradient and 2·n for that
  of the weights (n where there is one vector).
"""

from __future__ import annotations

from typing import NamedTuple

from gemmetry.traces.call_arguments import Amounts, Call, MissingArgumentError, elements


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
    """Which gradients are requested."""
    gradients: int = 3
    is_backward: bool = False
    by_mean_square: bool = False


_BATCH = _NormalizationPlaces(0, 1, 2, training=5)
_LAYER = _NormalizationPlaces(0, 2, 3, normalized=1)
_LAYER_BACKWARD = _NormalizationPlaces(1, None, None, normalized=2, wanted=7, is_backward=True)
_GROUP_BACKWARD = _NormalizationPlaces(1, 4, None, wanted=9, is_backward=True)
_RMS_BACKWARD = _NormalizationPlaces(
    1, 4, None, normalized=2, wanted=5, gradients=2, is_backward=True, by_mean_square=True
)
_OF_TRAINING = _NormalizationPlaces(0, 2, None, is_backward=True)
"""Operators of cuDNN and MIOpen, which are called only after training and have no mask."""

NORMALIZATIONS = {
    "aten::batch_norm": _BATCH,
    "aten::native_batch_norm": _BATCH,
    "aten::cudnn_batch_norm": _BATCH,
    "aten::miopen_batch_norm": _BATCH,
    "aten::instance_norm": _BATCH,
    "aten::layer_norm": _LAYER,
    "aten::native_layer_norm": _LAYER,
    "aten::group_norm": _NormalizationPlaces(0, 2, 3),
    "aten::native_group_norm": _NormalizationPlaces(0, 1, 2),
    "aten::_fused_rms_norm": _NormalizationPlaces(0, 2, None, normalized=1, by_mean_square=True),
    "aten::native_batch_norm_backward": _NormalizationPlaces(
        1, 2, None, training=7, wanted=9, is_backward=True
    ),
    "aten::cudnn_batch_norm_backward": _OF_TRAINING,
    "aten::miopen_batch_norm_backward": _OF_TRAINING,
    "aten::native_layer_norm_backward": _LAYER_BACKWARD,
    "aten::native_group_norm_backward": _GROUP_BACKWARD,
    "aten::_fused_rms_norm_backward": _RMS_BACKWARD,
}
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
