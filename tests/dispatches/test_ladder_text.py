from __future__ import annotations

import dataclasses
import zlib

import numpy as np

from gemmetry.dispatches.ladder import ladder_of, ladder_steps
from gemmetry.dispatches.ladder_report import ladder_files, print_ladder
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import BuildFacts, ResultSet, Telemetry

SMALL = "matmul_512x512x512_bf16t_bf16n_bf16t"
LARGE = "matmul_16384x16384x16384_bf16t_bf16n_bf16t"
GFLOPS = (0.1, 300, 5300, 21e3, 310e3, 330e3, 470e3, 560e3, 610e3, 650e3, 700e3, 765e3)
FACTS = BuildFacts(registers=168, spill_bytes=0, shared_memory_bytes=230464)
FAILED = {"outcome": Outcome.WRONG, "stage": Stage.VERIFY, "reason": "an element is wrong"}
KEYS = [step.key for step in ladder_steps()]


def rounds(one):
    if one.measurement is None:
        return {}
    noise = np.random.default_rng(zlib.crc32(one.dispatch.encode())).normal(1, 1e-3, 24)
    return {turn: [one.measurement.median_ns * noise[turn]] * 5 for turn in range(24)}


def test_ladders(make_record, console_text, dumped, golden):
    """Ladders of a GPU, as printed in 80 columns and as tables."""

    def record(operation, configuration, gflops, provider="cuda", facts=FACTS, **fields):
        return make_record(
            operation, configuration, provider=provider, gflops=gflops, target="cuda-sm_90",
            device="cuda:0", facts=facts, roofline_fraction=0.77,
            measured={"telemetry": Telemetry(sm_clock_hz=1.45e9, power_w=698.0)}, **fields,
        )  # fmt: skip

    whole = [record(operation, KEYS[number], GFLOPS[number])
             for operation, numbers in ((SMALL, range(3)), (LARGE, range(2, 12)))
             for number in numbers]  # fmt: skip
    whole += [record(SMALL, "cublaslt", 90e3, "torch"), record(LARGE, "default", 740e3, "torch")]
    best = dataclasses.replace(FACTS, algorithms_tried=8)
    # The fastest configurations of a rung and of the library count, a rung that failed is passed
    # over, the next two rungs are alike, and gains are as expected, open, or a loss.
    speeds = {f"{KEYS[3]}_a": 30e3, f"{KEYS[3]}_b": 40e3, KEYS[4]: 300e3, KEYS[6]: 400e3,
              KEYS[7]: 400e3, KEYS[8]: 600e3, KEYS[9]: 500e3}  # fmt: skip
    mixed = [record(LARGE, name, speed) for name, speed in speeds.items()]
    mixed += [record(LARGE, name, speed, "torch")
              for name, speed in (("default", 700e3), ("cublaslt", 800e3))]  # fmt: skip
    mixed.append(record(LARGE, KEYS[5], None, **FAILED))
    parts = []
    for records, found in (
        (whole, rounds), ([*whole, record(LARGE, "best", 790e3, "cublaslt", best)], rounds),
        (mixed, rounds), (mixed[: len(speeds)], lambda one: {}),
    ):  # fmt: skip
        ladder = ladder_of(ResultSet(title="x", records=records, rounds=found))
        files = ladder_files(ladder)
        parts.append(console_text(lambda console, one=ladder: print_ladder(one, console)))
        assert max(map(len, parts[-1].splitlines())) <= 80
        parts.append(dumped(*(list(row) for name in files.rows for row in files.table(name).rows)))
    golden("ladder", "\f\n".join(parts))
