from __future__ import annotations

from gemmetry.results.tables import cell_text


def test_cells_hold_one_value():
    assert cell_text(["a", "b"]) == "a; b"
    assert cell_text({"a": 1, "b": "c"}) == "a=1; b=c"
    assert cell_text(1.5) == 1.5
    assert cell_text(None) is None
    assert (cell_text(True), cell_text(False)) == ("yes", "no")
