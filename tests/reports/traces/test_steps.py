from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import Outside, outside_steps, summarize, summarize_steps
from gemmetry.traces.text import outside_text, print_steps

DATA = Path(__file__).parents[2] / "data" / "traces"


def read(name):
    return Trace(DATA / name, read_trace(DATA / name, use_cache=False))


def shown(*traces):
    out = io.StringIO()
    steps = [step for trace in traces for step in summarize_steps(trace)]
    outside = [outside_steps(trace) for trace in traces]
    files = [summarize(trace) for trace in traces]
    print_steps(files, steps, outside, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def pipelined(folder):
    """Two steps: between the two kernels of the first one only the other's runs for 10 µs."""
    events = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": 100}
        for number, at in ((1, 0), (2, 100))
    ]
    work = ((1, 10, 200, 50, 7), (2, 20, 260, 100, 7), (3, 110, 240, 200, 20))
    for number, launched, start, length, stream in work:
        args = {"correlation": number, "device": 0, "stream": stream}
        events += [
            {"cat": "cuda_runtime", "name": "launch", "ts": launched, "dur": 1, "args": args},
            {"cat": "kernel", "name": "k", "ts": start, "dur": length, "args": args},
        ]
    path = folder / "pipelined.json"
    path.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **one} for one in events]})
    )
    return Trace(path, read_trace(path, use_cache=False))


def test_steps_that_overlap_say_so(tmp_path):
    text = shown(pipelined(tmp_path))
    lines = text.splitlines()
    assert lines[0].split() == [
        "step", "mark", "window", "kernels", "busy", "comp.", "comm.", "exposed", "others", "idle",
        "GEMMs",
    ]  # fmt: skip
    rows = [line.split() for line in lines[2:4]]
    assert [row[:5] + row[8:9] for row in rows] == [
        ["1", "0.100", "0.160", "2", "93.8", "6.2"],
        ["2", "0.100", "0.200", "1", "100.0", "0.0"],
    ]
    assert "windows overlap: 0.360 ms added up, but 0.240 of the trace's 0.240 ms together" in text
    assert "Steps overlap on the device" in text
    assert max(map(len, lines)) <= 80


def test_what_is_in_no_step():
    def text(kernels, unlinked):
        return outside_text(
            Outside(file=Path("a"), kernels=kernels, gemm_kernels=0, comm_kernels=0,
                    unlinked=unlinked)
        )  # fmt: skip

    assert text(0, 0) == ""
    assert text(1, 0) == "1 kernel in no step"
    assert text(1500, 1500) == "1,500 kernels in no step; their launches are not in the file"
    assert text(3, 2) == "3 kernels in no step; the launches of 2 are not in the file"


def test_no_steps_give_no_table():
    assert shown(read("mi300x_torch_compile_triton.json.gz")) == ""
