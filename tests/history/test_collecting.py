from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.record import Environment, Measurement, Record, ResultSet, Telemetry
from gemmetry.history.api import _added
from gemmetry.history.folder import StoredHistory, device_class, runs_of

OPERATION = "matmul_8x8x8_f32t_f32t_f32t"
H200 = Environment(
    hostname="node", devices=("NVIDIA H200", "NVIDIA H200"), driver="580.1",
    device_memory_bytes=(150_754_820_096, 150_754_820_096), power_limits_w=(699.9, 500.0),
    git_revision="1a2b3c4", packages={"torch": "2.9.0"},
)  # fmt: skip
LAPTOP = Environment(hostname="laptop", cpu="AMD EPYC", cpu_count=2)


def record(**changes):
    measured = Measurement(
        median_ns=2.0, ci_low_ns=1.0, ci_high_ns=3.0, min_ns=1.0, p95_ns=3.0, sample_count=9,
        method="graph", marks=("busy: others", "noisy: wide", "busy: again"),
        telemetry=Telemetry(sm_clock_hz=1.9e9, power_w=600.0, throttle_reasons=("power cap",)),
    )  # fmt: skip
    values = {
        "dispatch": f"{OPERATION}_default", "provider": "torch", "target": "cuda-sm_90",
        "device": "cuda:0", "operation": OPERATION, "configuration": "default",
        "outcome": Outcome.OK, "distribution": "normal", "seed": 1, "flops": 1, "bytes": 1,
        "measurement": measured, "environment_id": "gpu", **changes,
    }  # fmt: skip
    return Record(**values)


def experiment(*records, **changes):
    values = {
        "title": "nightly", "path": "runs/1", "created": "2026-11-23T02:00:00+00:00",
        "environments": {"gpu": H200, "cpu": LAPTOP},
        "document": {"settings": {"verification_level": "standard", "seed": 42, "tags": {"a": 1}}},
        **changes,
    }  # fmt: skip
    return ResultSet(records=records, **values)


def test_an_experiment_becomes_one_entry_for_each_class_of_devices():
    cpu = record(target="cpu", device="cpu", environment_id="cpu")
    first, second, third = runs_of(experiment(record(), record(device="cuda:1"), cpu))
    assert [one.device for one in (first, second, third)] == [
        "NVIDIA H200, 140 GiB, 700 W", "NVIDIA H200, 140 GiB, 500 W", "AMD EPYC, 2 processors",
    ]  # fmt: skip
    assert first.id == second.id == third.id
    assert (first.commit, third.commit) == ("1a2b3c4", "")
    assert first.time == "2026-11-23T02:00:00+00:00"
    assert first.settings == {"verification_level": "standard"}
    assert first.environments.keys() == {"gpu"}
    [point] = first.points
    assert (point.median_ns, point.low_ns, point.high_ns) == (2.0, 1.0, 3.0)
    assert (point.sm_clock_hz, point.power_w, point.throttle) == (1.9e9, 600.0, ("power cap",))
    assert point.marks == ("busy", "noisy")


def test_the_class_of_a_device_has_no_clocks_or_versions_in_it():
    newer = replace(H200, driver="590", packages={"torch": "2.10"})
    assert device_class(record(), newer) == device_class(record(), H200)
    unknown = replace(H200, device_memory_bytes=(), power_limits_w=())
    assert device_class(record(), unknown) == "NVIDIA H200"
    assert device_class(record(), Environment()) == "cuda-sm_90"
    assert device_class(record(target="null", device="null:0"), LAPTOP) == "simulated device"


def test_a_dispatch_that_failed_keeps_its_outcome():
    failed = record(outcome=Outcome.CRASH, measurement=None, reason="it crashed")
    [run] = runs_of(experiment(failed))
    assert (run.points[0].outcome, run.points[0].median_ns) == ("crash", None)
    apart = replace(record().measurement, launches="apart")
    [run] = runs_of(experiment(failed, record(dispatch="other", measurement=apart)))
    assert [point.launches for point in run.points] == ["apart"] * 2, "in its series"


def test_an_experiment_is_recognised_after_it_was_copied_and_after_it_has_grown():
    [run] = runs_of(experiment(record()))
    [copy] = runs_of(experiment(record(), path="elsewhere"))
    [grown] = runs_of(experiment(record(), record(provider="triton")))
    [other] = runs_of(experiment(record(), created="2026-11-24T02:00:00+00:00"))
    assert (copy.id, copy.digest) == (run.id, run.digest)
    assert grown.id == run.id
    assert other.id != run.id
    for one, state in ((copy, "same"), (grown, "replaced"), (other, "added")):
        assert _added(Path(), one, StoredHistory({run.device: [run]})).state == state


def test_what_the_user_states_counts_and_what_cannot_be_stored_is_refused():
    [run] = runs_of(experiment(record()), commit="abc", label="nightly", time="2026-01-02")
    assert (run.commit, run.label, run.time) == ("abc", "nightly", "2026-01-02T00:00:00+00:00")
    [run] = runs_of(experiment(record()), time="2026-01-02T03:00:00+02:00")
    assert run.time == "2026-01-02T01:00:00+00:00"
    with pytest.raises(RequestError, match="'yesterday'"):
        runs_of(experiment(record()), time="yesterday")
    with pytest.raises(RequestError, match="runs/1"):
        runs_of(experiment())
