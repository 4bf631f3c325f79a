from __future__ import annotations

import json

import pytest

from gemmetry.documents.operator_models import operator_model
from gemmetry.formats.events import OperatorArguments

FLASH = "aten::_scaled_dot_product_flash_attention"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"


def _model(name, shapes, values, dtype="c10::Half", *, backward=False):
    recorded = OperatorArguments(
        shapes=json.dumps(shapes), dtypes=json.dumps([dtype] * 4), values=json.dumps(values)
    )
    return operator_model(name, recorded, backward=backward)


def test_two_products_and_five_backward():
    shapes = [[2, 8, 100, 64], [2, 8, 150, 64], [2, 8, 150, 32]]
    values = ["", "", "", "0.1", "False"]
    forward = _model(FLASH, shapes, values)
    pairs = 2 * 8 * 100 * 150
    assert forward.flops == 2 * pairs * (64 + 32)
    q, k, v, out = (2 * 8 * n for n in (100 * 64, 150 * 64, 150 * 32, 100 * 32))
    assert forward.bytes == 2 * (q + k + v + out)
    assert forward.cells["dropout"] == 0.1
    assert forward.spec == "matrix_fp16"
    backward = _model(FLASH, shapes, values, backward=True)
    assert backward.sheet == "SDPA_bwd"
    assert backward.flops == 2 * pairs * (3 * 64 + 2 * 32)
    assert backward.bytes == 2 * (2 * (q + k + v) + out)


def test_elements_are_as_wide_as_their_type():
    shapes = [[1, 1, 4, 4]] * 3
    values = ["", "", "", "", "False", "0", "False"]
    narrow, wide = (_model(EFFICIENT, shapes, values, dtype) for dtype in ("c10::Half", "float"))
    assert wide.bytes == 2 * narrow.bytes
    assert narrow.cells["flash_impl"] is False


def test_a_causal_mask_halves_the_work():
    shapes = [[1, 2, 16, 8]] * 3
    whole = _model(FLASH, shapes, ["", "", "", "0.", "False"])
    half = _model(FLASH, shapes, ["", "", "", "0.", "True"])
    assert half.flops * 2 == whole.flops
    assert half.bytes == whole.bytes
    assert _model(FLASH, [[1, 2, 8, 8], *shapes[:2]], ["", "", "", "0.", "True"]) is None


def test_heads_of_q_that_share_one_of_k_add_up_its_gradient():
    shapes = [[1, 8, 16, 4], [1, 2, 16, 4], [1, 2, 16, 4]]
    values = ["", "", "", "0.", "False"]
    backward = _model(FLASH, shapes, values, backward=True)
    assert backward.flops == 2 * 8 * 16 * 16 * (5 * 4) + 16 * 3 * 8


def test_a_backward_operator_of_another_library():
    q = [2, 10, 3, 16]
    values = ["", "", "", "", "", "", "", "", "", "0.0", "0.125", "True"]
    model = _model("flash_attn::_flash_attn_backward", [q] * 6, values)
    assert model.sheet == "SDPA_bwd"
    assert (model.cells["N_Q"], model.cells["H_Q"]) == (10, 3)
    assert model.flops == 2 * 3 * 10 * 10 * (5 * 16)


@pytest.mark.parametrize(
    "shapes",
    [
        [[2, 8, 4, 4], [3, 8, 4, 4], [3, 8, 4, 4]], [[2, 8, 4, 4]] * 2, [[8, 4, 4]] * 3,
        [[2, 8, 4, 4], [2, 0, 4, 4], [2, 0, 4, 4]],
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_not_known(shapes):
    assert _model(FLASH, shapes, ["", "", "", "0.", "False"], backward=True) is None
