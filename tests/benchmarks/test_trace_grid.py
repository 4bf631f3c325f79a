from __future__ import annotations

import json

import trace_grid

KERNELS = (("gemm<64>", 7.5), ("memory_fill", 0.5))


def test_a_row_shows_kernel_median_range_and_speed(tmp_path, monkeypatch, capsys):
    """Two repeats of a 512³ product: 8 µs and 10 µs of kernels."""
    folder = tmp_path / "traces_matmul" / "config_0001"
    folder.mkdir(parents=True)
    for number, extra_us in ((1, 0.0), (2, 2.0)):
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "ts": 10.0 * index, "dur": us + extra_us / 2,
             "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "correlation": index}}
            for index, (name, us) in enumerate(KERNELS, 1)
        ]  # fmt: skip
        path = folder / f"repeat_0{number}.pt.trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    record = {"m": 512, "n": 512, "k": 512, "batch": 1, "lhs_dtype": "f16", "layouts": "tn",
              "reason": None}  # fmt: skip
    entry = {
        "number": 1, "folder": "traces_matmul/config_0001", "outcome": "ok", "record": record,
        "files": [path.name for path in sorted(folder.iterdir())], "schedule": {"active_steps": 1},
    }  # fmt: skip
    refused = {**entry, "number": 2, "outcome": "unsupported", "files": [],
               "record": {**record, "reason": "no such unit"}}  # fmt: skip
    document = json.dumps({"configurations": [entry, refused]})
    (tmp_path / "traces_matmul" / "manifest.json").write_text(document)
    monkeypatch.setattr("sys.argv", ["trace_grid.py", str(tmp_path)])
    trace_grid.main()
    first, second = capsys.readouterr().out.splitlines()[2:]
    # 2·512³ FLOP in 9 µs.
    assert first == "| 1 | 512×512×512 | f16 | tn | `gemm<64>` | 9.0 | 8.0–10.0 | 30 |"
    assert second == "| 2 | 512×512×512 | f16 | tn | unsupported: no such unit | | | |"
