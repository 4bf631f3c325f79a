from __future__ import annotations

from typing import Any

import numpy as np

from gemmetry.domain.operation import BF16
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import numpy_dtype, to_float64
from gemmetry.selftest.arithmetic import truncated

TM, TN, TK = 64, 64, 32


def test_truncation_cuts_towards_zero() -> None:
    values = np.array([1 + 2.0**-13 + 2.0**-20, -(1 + 2.0**-14), 3.0, 0.0, np.inf])
    assert truncated(values, 14).tolist() == [1 + 2.0**-13, -1.0, 3.0, 0.0, np.inf]
    assert np.isnan(truncated(np.array([np.nan]), 14)).all()


def test_fast_fp8_sums_lose_more_and_more(plant: Any) -> None:
    losses = []
    for k in (512, 4096):
        bench = plant("fp8_sums_not_promoted", (TM, TN, k))
        bench.use(make_inputs(bench.operation, distribution="uniform", seed=3))
        a, b = (to_float64(array) for array in bench.inputs)
        output = to_float64(bench.launch())
        exact = a @ b.reshape(bench.operation.inputs[1].storage_shape).T
        assert (output < exact).all()
        losses.append(float((1 - output / exact).max()))
    # 14 bits, truncated K/8 times: about K/8 · 2^-14 relative to a sum that grows all the time.
    assert 2e-3 > losses[0] > 5e-4
    assert 2e-2 > losses[1] > 4e-3


def test_f16_inputs_show_only_beyond_its_range(plant: Any) -> None:
    bench = plant("f16_inputs")
    assert bench.is_right()
    inputs = [np.array(array) for array in bench.inputs]
    inputs[0][7, 3] = numpy_dtype(BF16).type(70000.0)
    bench.use(inputs)
    wrong = bench.wrong()
    assert wrong[7].all()
    assert wrong.sum() == wrong.shape[1]


def test_unpadded_scales_show_where_rows_fill_no_block(plant: Any) -> None:
    assert plant("scale_layout_unpadded").is_right()
    wrong = plant("scale_layout_unpadded", (100, TN, TK)).wrong()
    assert wrong.any(axis=1).any()
    assert not wrong.any(axis=1)[:25].all()


def test_scales_as_exponents_show_where_they_are_none(plant: Any) -> None:
    bench = plant("scales_as_exponents")
    assert bench.is_right()
    for scale in (1.25, -2.0):
        inputs = [np.array(array) for array in bench.inputs]
        inputs[2][9] = scale
        bench.use(inputs)
        assert np.flatnonzero(bench.wrong().any(axis=1)).tolist() == [9]
