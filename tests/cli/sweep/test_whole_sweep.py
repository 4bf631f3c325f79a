"""The workload's sweep on the CPU, from ``gemmetry sweep run`` to ``gemmetry sweep compare``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest


def test_a_point_from_run_to_compare(cli, quick_plots):
    """Starting torchrun, and torch in each of its ranks, takes most of the time."""
    pytest.importorskip("torch")
    cli("sweep", "run", "--threads", "256", "--channels", "1", "--config", "tiny", "--override",
        "model.num_layers=1", "-o", "sweep", status=0)  # fmt: skip
    folder = Path("sweep/256thread/nccl_1channels")
    point = json.loads((folder / "point.json").read_text())
    assert (point["world_size"], point["backend"], point["library"]) == (2, "gloo", "gloo")
    assert len(point["losses"]) == 4
    assert point["requested"][0] == {
        "name": "channels", "value": "1", "environment": {},
        "note": "gloo has no such setting, so that points differ in name only",
    }  # fmt: skip
    for rank in (0, 1):
        (trace,) = (folder / "torch_profiler" / f"rank{rank}").iterdir()
        assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]

    document = cli.json("sweep", "analyze", "sweep", "--only", "variance,timeline")
    (one,) = document["points"]
    assert (one["threads"], one["channels"]) == (256, 1)
    assert (one["outcome"], one["world_size"], one["step_ms"]["n"]) == ("ok", 2, 2)
    assert {setting["verdict"] for setting in one["settings"]} == {"not applicable"}
    assert [rank["rank"] for rank in one["stragglers"]] == [0, 1]
    assert {gemm["rank"] for gemm in document["gemms"]} == {0, 1}

    ended = cli("sweep", "compare", "sweep", "sweep", "-o", "sweep_comparison.html", status=0)
    assert "B holds the same runs as A: nothing can differ." in ended.stdout
    page = Path("sweep_comparison.html").read_text()
    assert "nothing can differ" in page and "256 threads, 1 channel" in page
