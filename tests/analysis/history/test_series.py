from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gemmetry.domain.errors import UnknownNameError
from gemmetry.history.changes import device_history, name_matches, nan_median


def history(histories, baseline=None, **changes):
    synthetic = histories.SyntheticHistory(shapes=2, runs=6, **changes)
    runs = synthetic.entries()
    return device_history("a device", runs, baseline)


def test_dispatches_have_rows_runs_columns_and_the_library_of_a_problem_is_its_reference(histories):
    found = history(histories)
    assert found.median_ns.shape == (6, 6)
    assert np.isfinite(found.median_ns).all()
    assert (found.low_ns < found.median_ns).all()
    assert found.short_names[0] == "torch:matmul_64x256x256_bf16t_bf16t_f32t_default"
    assert [key[0] for key in found.keys] == ["torch"] * 2 + ["triton"] * 2 + ["iree"] * 2
    assert found.references == [None, None, 0, 1, 0, 1]
    assert history(histories, "iree:default").references == [4, 5, 4, 5, None, None]
    assert history(histories, providers=("triton", "iree")).references == [None] * 4
    with pytest.raises(UnknownNameError, match="iree:fast"):
        history(histories, "iree:fast")


@pytest.mark.parametrize(("condition", "value"), [("distribution", "zeros"), ("launches", "apart")])
def test_other_conditions_are_other_series_with_references_of_their_own(
    histories, condition, value
):
    runs = histories.SyntheticHistory(shapes=1, runs=2).entries()
    for run in runs:
        run.points.extend([msgspec.structs.replace(p, **{condition: value}) for p in run.points])
    found = device_history("a device", runs)
    assert found.references == [None, 0, 0, None, 3, 3]
    assert found.short_names[3].endswith(f"_default {value}")


def test_a_dispatch_that_failed_has_no_time_and_was_lost(histories):
    found = history(histories, lost={("triton", 1, 4), ("triton", 1, 5), ("iree", 0, 2)})
    assert np.isnan(found.median_ns[3, 4:]).all()
    assert found.lost == {3: 4}
    assert (found.outcome(4, 2), found.outcome(4, 3)) == ("crash", "ok")


def test_the_level_of_a_run_is_what_all_dispatches_share(histories):
    synthetic = histories.SyntheticHistory(shapes=10, runs=8, noise=0.0, host_noise=0.0)
    synthetic.slow(1.5, 7)
    synthetic.slow(2.0, 4, provider="iree", shape=3)
    runs = synthetic.entries()
    level = device_history("a device", runs).level
    assert level[:7] == pytest.approx(np.zeros(7))
    assert level[7] == pytest.approx(np.log(1.5))


def test_the_median_of_what_was_measured_and_patterns_of_names():
    values = np.array([[1.0, np.nan, 3.0], [np.nan] * 3, [5.0, np.nan, np.nan], [1.0, 2.0, 9.0]])
    assert nan_median(values, 1) == pytest.approx([2.0, np.nan, 5.0, 2.0], nan_ok=True)
    # A pattern is a part or a glob.
    assert name_matches("torch:matmul_64", "matmul_6")
    assert name_matches("torch:matmul_64", "torch:*")
    assert not name_matches("torch:matmul_64", "iree:*")
