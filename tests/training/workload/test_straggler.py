from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError

pytest.importorskip("torch")

from gemmetry.sweeps.workload.failures import Straggle


def test_rank_and_time_are_read():
    assert Straggle.parse("3:2.5") == Straggle(3, 2.5)


@pytest.mark.parametrize("text", ["", "1", "1:", ":5", "1:0", "1:-2", "-1:5", "1:inf", "1:nan"])
def test_another_form_is_refused(text):
    with pytest.raises(RequestError, match="not of the form RANK:MS"):
        Straggle.parse(text)
