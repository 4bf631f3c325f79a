from __future__ import annotations

import dataclasses
import io
import zlib

import numpy as np
import pytest
from rich.console import Console

from gemmetry.dispatches.ladder import ladder_of, ladder_steps
from gemmetry.dispatches.ladder_report import print_ladder
from gemmetry.domain.record import BuildFacts, ResultSet, Telemetry

SMALL = "matmul_512x512x512_bf16t_bf16n_bf16t"
LARGE = "matmul_16384x16384x16384_bf16t_bf16n_bf16t"
GFLOPS = (0.1, 300, 5300, 21e3, 310e3, 330e3, 470e3, 560e3, 610e3, 650e3, 700e3, 765e3)
FACTS = BuildFacts(registers=168, spill_bytes=0, shared_memory_bytes=230464)


@pytest.fixture
def printed(make_record):
    """printed(other records) -> a whole ladder on a GPU, as printed in 80 columns."""

    def record(operation, configuration, provider, gflops, facts=FACTS):
        return make_record(
            operation, configuration, provider=provider, gflops=gflops, target="cuda-sm_90",
            device="cuda:0", facts=facts, roofline_fraction=0.77,
            measured={"telemetry": Telemetry(sm_clock_hz=1.45e9, power_w=698.0)},
        )  # fmt: skip

    def rounds(one):
        noise = np.random.default_rng(zlib.crc32(one.dispatch.encode())).normal(1, 1e-3, 24)
        return {turn: [one.measurement.median_ns * noise[turn]] * 5 for turn in range(24)}

    records = [
        record(operation, step.key, "cuda", GFLOPS[step.number])
        for operation, numbers in ((SMALL, range(3)), (LARGE, range(2, 12)))
        for step in ladder_steps()
        if step.number in numbers
    ]
    records += [record(SMALL, "cublaslt", "torch", 90e3), record(LARGE, "default", "torch", 740e3)]

    def text(*others):
        stream = io.StringIO()
        added = [record(*values) for values in others]
        result_set = ResultSet(title="x", records=[*records, *added], rounds=rounds)
        print_ladder(ladder_of(result_set), Console(file=stream, width=80))
        return stream.getvalue()

    return text


def test_the_ladder(printed, golden):
    """Alone, and next to the best of the library's algorithms."""
    best = dataclasses.replace(FACTS, algorithms_tried=8)
    texts = [printed(), printed((LARGE, "best", "cublaslt", 790e3, best))]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80
    golden("ladder", "\f\n".join(texts))
