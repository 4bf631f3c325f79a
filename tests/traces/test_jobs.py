from __future__ import annotations

import pytest

from gemmetry.traces.jobs import rank_trace


@pytest.mark.parametrize(
    ("file", "number"),
    [
        ("x/rank3.pt.trace.json.gz", 3), ("x/sampled_rank-12.json", 12), ("rank_5/trace.json", 5),
        ("rank1/rank2.json", 2), ("x/frank7.json", None), ("x/trace.json", None),
    ],
)  # fmt: skip
def test_the_rank_comes_from_the_file_name_where_the_trace_has_none(recording, file, number):
    found = rank_trace(recording().trace(file))
    assert found.rank == number
    assert found.rank_source == ("" if number is None else "name")
