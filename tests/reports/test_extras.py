from __future__ import annotations

import sys

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.results.tables import require


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(RequestError, match="plotly") as caught:
        require("plotly.offline", extra="plot")
    assert "gemmetry[plot]" in caught.value.hint


def test_an_installed_one_is_returned():
    assert require("json", extra="none").loads("1") == 1
