from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import UnknownNameError
from gemmetry.history.changes import device_history, name_matches, nan_median


def test_an_unknown_reference_is_refused(histories):
    runs = histories.SyntheticHistory(shapes=1, runs=2).entries()
    with pytest.raises(UnknownNameError, match="iree:fast"):
        device_history("a device", runs, "iree:fast")


def test_the_median_of_what_was_measured_and_patterns_of_names():
    values = np.array([[1.0, np.nan, 3.0], [np.nan] * 3, [5.0, np.nan, np.nan], [1.0, 2.0, 9.0]])
    assert nan_median(values, 1) == pytest.approx([2.0, np.nan, 5.0, 2.0], nan_ok=True)
    # A pattern is a part or a glob.
    assert name_matches("torch:matmul_64", "matmul_6")
    assert name_matches("torch:matmul_64", "torch:*")
    assert not name_matches("torch:matmul_64", "iree:*")
