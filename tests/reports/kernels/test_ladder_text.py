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
        made = make_record(
            operation, configuration, provider=provider, gflops=gflops, target="cuda-sm_90",
            device="cuda:0", facts=facts, roofline_fraction=0.77,
        )  # fmt: skip
        state = Telemetry(sm_clock_hz=1.45e9, power_w=698.0)
        return dataclasses.replace(
            made, measurement=dataclasses.replace(made.measurement, telemetry=state)
        )

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


@pytest.fixture
def text(printed):
    """Next to torch alone."""
    return printed()


def test_each_rung_is_a_line_of_each_table(text):
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    for step in ladder_steps():
        name = f"{step.number} {step.name.partition('_')[2].replace('_', ' ')} "
        assert sum(line.lstrip().startswith(name) for line in lines) == (
            4 if step.number == 2 else 2
        )


def test_gains_and_shares_have_their_intervals(text):
    line = next(line for line in text.splitlines() if line.startswith(" 3 register"))
    assert "21.0 ±1.1% ✓" in line and "3.96× [" in line and "2.84% [" in line
    # An interval within the last digit, or of a tiny share, is not printed.
    naive = next(line for line in text.splitlines() if line.startswith(" 0 naive"))
    assert naive.endswith("0.000111%")
    assert "torch:cublaslt: 90.0 TFLOP/s" in text and "torch:default: 740 TFLOP/s" in text


def test_planned_gains_stand_next_to_the_measured_ones(text):
    planned = text.partition("Planned gains")[2]
    for part in ("100–200×", "5–10×", "2–3×", "1.5–2×", "more", "less", "0 → 2", "6 → 8"):
        assert part in planned


def test_the_best_of_the_librarys_algorithms_is_a_second_baseline(printed):
    best = dataclasses.replace(FACTS, algorithms_tried=8)
    text = printed((LARGE, "best", "cublaslt", 790e3, best))
    assert max(map(len, text.splitlines())) <= 80
    assert "cublaslt:best (best of 8): 790 TFLOP/s" in text
    shares = [line for line in text.splitlines() if line.startswith("11 best") and "%" in line]
    (both,) = (line for line in shares if line.count("% [") == 2)
    assert "103% [" in both and "96.8% [" in both
    small, _, large = text.partition("16384")
    assert "of the best of its algorithms" in large
    assert "of the best of its algorithms" not in small
