"""A realistic invented experiment: providers, dtypes, every outcome, hostile names."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pytest
from tests.cases import Case

from gemmetry.domain.dispatch import split_dispatch_name
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import (
    BuildFacts,
    Environment,
    Measurement,
    Record,
    ResultSet,
    Telemetry,
    Verdict,
)

EXPERIMENTS = Path(__file__).with_name("experiments.txt")


HOSTILE = "<script>alert(1)</script>"


ENVIRONMENT = Environment(
    hostname="bench-7",
    operating_system="Linux 6.1",
    python="3.11.7",
    cpu="Example CPU @ 2.80GHz",
    cpu_count=2,
    memory_bytes=25_000_000_000,
    packages={"gemmetry": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
    git_revision="0123abc",
    variables={"OMP_NUM_THREADS": "2"},
)


ENVIRONMENT_ID = "0123456789ab"


PEAK_FLOPS_PER_S = {"f32": 450e9, "bf16": 900e9, "s8": 1800e9}


BYTES_PER_S = 25e9


def make_record(
    operation: str,
    configuration: str = "default",
    *,
    provider: str = "torch",
    gflops: float | None = 200.0,
    outcome: Outcome = Outcome.OK,
    measured: dict[str, object] | None = None,
    **fields,
) -> Record:
    """A record with a plausible measurement, whose numbers depend on its arguments alone.

    `measured` has other values of the measurement.
    """
    parsed, _ = split_dispatch_name(operation)
    dispatch = f"{operation}_{configuration}"
    measurement = fraction = None
    name = parsed.signature.lhs.name
    if outcome is Outcome.OK and gflops is not None:
        median = parsed.flops / gflops
        measurement = Measurement(
            median_ns=median, ci_low_ns=median * 0.991, ci_high_ns=median * 1.013,
            min_ns=median * 0.97, p95_ns=median * 1.08, sample_count=60, launches_per_sample=4,
            rounds=3, method="wall_clock", stop_reason="interval", input_sets=5,
            first_launch_ns=median * 3, telemetry=Telemetry(load_average=0.4),
            marks=tuple(fields.pop("marks", ())),
        )  # fmt: skip
        measurement = dataclasses.replace(measurement, **measured or {})
        if name in PEAK_FLOPS_PER_S:
            allowed = min(PEAK_FLOPS_PER_S[name], parsed.flops / parsed.bytes * BYTES_PER_S)
            fraction = gflops * 1e9 / allowed
    verdict = Verdict(
        status=Verification.PASSED if measurement else Verification.NOT_VERIFIED,
        checks={"values": "passed", "repeat": "passed", "red_zones": "not applicable: host"},
        max_error_ratio=0.031, relative_frobenius_error=2.1e-7, signed_bias=-1.2e-9,
        accuracy_class="f32 accumulation", zero_share=0.0,
    )  # fmt: skip
    values = {
        "target": "cpu", "device": "cpu", "stage": None, "reason": "", "verdict": verdict,
        "distribution": "offset_uniform", "seed": 42, "facts": BuildFacts(),
        "roofline_fraction": fraction, "environment_id": ENVIRONMENT_ID,
        "roofline_source": "measured on this machine" if fraction else "",
        "reproduce": f"gemmetry profile --providers {provider} --dispatches {dispatch}", **fields,
    }  # fmt: skip
    return Record(
        dispatch=dispatch, provider=provider, operation=operation, configuration=configuration,
        outcome=outcome, flops=parsed.flops, bytes=parsed.bytes, measurement=measurement, **values,
    )  # fmt: skip


def noisy_samples(record: Record) -> list[float]:
    """Samples within some percent of the record's median; noise is the same for every record."""
    noise = np.random.default_rng(7).normal(1.0, 0.01, 40)
    return [] if record.measurement is None else list(record.measurement.median_ns * noise)


def fake_samples(record: Record) -> list[float]:
    """Samples whose median is near the record's, with a right tail; the same on every call."""
    if record.measurement is None:
        return []
    digest = hashlib.sha256(record.dispatch.encode() + record.provider.encode()).digest()
    noise = np.random.default_rng(list(digest[:8])).gamma(2.0, 0.008, 60)
    return [float(value) for value in record.measurement.median_ns * (0.985 + noise)]


_TILES = ("64x64_32", "128x64_32", "64x128_64", "128x128_16")


_SPEEDS = {"f32": 210.0, "bf16": 380.0, "s8": 700.0}


_OPERANDS = {"f32": "f32t_f32t_f32t", "bf16": "bf16t_bf16t_f32t", "s8": "s8t_s8t_s32t"}


def _measured_records() -> list[Record]:
    records = []
    shapes = [(m, n, 512) for m in (128, 256, 512, 1024) for n in (128, 256, 512, 1024)]
    for dtype, operands in _OPERANDS.items():
        chosen = [*shapes, (257, 129, 65)] if dtype == "f32" else [(512, 512, 512), (257, 129, 65)]
        for m, n, k in chosen:
            operation = f"matmul_{m}x{n}x{k}_{operands}"
            size = m * n * k / (m * n * k + 4e6)
            factors = {
                ("torch", "default"): 1.0,
                ("numpy", "default"): 0.9 if dtype == "f32" else 0.05,
                ("iree", "default"): 0.6,
                **{("iree", f"tile_{tile}"): 0.8 + 0.15 * i for i, tile in enumerate(_TILES)},
            }
            for (provider, configuration), factor in factors.items():
                # A realistic spread that is the same in every run.
                jitter = 0.9 + (zlib.crc32(f"{operation}{provider}".encode()) % 200) / 1000
                records.append(make_record(
                    operation, configuration, provider=provider,
                    gflops=_SPEEDS[dtype] * size * factor * jitter,
                ))  # fmt: skip
    return records


def record_of(operation: str, plain: list[str], given: dict[str, Any]) -> Record:
    """The record of arguments of :func:`make_record` as text."""

    def typed(kind, values):
        hints = get_type_hints(kind)
        return {name: msgspec.convert(value, hints[name]) if name in hints else value
                for name, value in values.items()}  # fmt: skip

    measured = typed(Measurement, given.pop("measured", {}))
    return make_record(operation, *plain, measured=measured, **typed(Record, given))


def records_of(title: str) -> list[Record]:
    """Records of ``experiments.txt``."""
    return [record_of(*call) for call in Case(EXPERIMENTS, title).calls()]


@pytest.fixture(name="record_of", scope="session")
def record_of_fixture():
    return record_of


@pytest.fixture(name="records_of", scope="session")
def records_of_fixture():
    return records_of


@pytest.fixture(scope="session")
def result_set() -> ResultSet:
    """109 measured dispatches of three providers, and one of every outcome; nothing changes it."""
    records = [*_measured_records(), *records_of("others")]
    return ResultSet(
        title=f"demo {HOSTILE}",
        records=records,
        environments={ENVIRONMENT_ID: ENVIRONMENT},
        samples=fake_samples,
        command=f"gemmetry profile --tags 'note={HOSTILE}' --output data.csv",
        path="gemmetry-out/demo-0123456789",
        created="2026-11-20T10:11:12Z",
    )


@pytest.fixture
def small_result_set() -> ResultSet:
    """Few records, for pinned texts."""
    return ResultSet(
        title="small", records=records_of("small"), environments={ENVIRONMENT_ID: ENVIRONMENT},
        samples=fake_samples, command="gemmetry profile --providers iree,torch",
        created="2026-11-20T10:11:12Z",
    )  # fmt: skip


@pytest.fixture(name="make_record")
def make_record_fixture():
    """The function that makes records."""
    return make_record
