from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import Measurement
from gemmetry.engine import device as timing_sanity
from gemmetry.engine.device import timing_check
from gemmetry.hardware.roofline import SpeedLimit
from gemmetry.measurement.stopping import Round
from gemmetry.verification.checks import CheckOutcome

H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")
LARGE = parse_operation("matmul_8192x8192x8192_bf16t_bf16t_bf16t")
SHORTEST_NS = 1.0995e12 / (1.3 * 989.4e12) * 1e9  # 0.855 ms


def measured(median_ns):
    return Measurement(
        median_ns=median_ns, ci_low_ns=median_ns, ci_high_ns=median_ns, min_ns=median_ns,
        p95_ns=median_ns, sample_count=10,
    )  # fmt: skip


@pytest.mark.parametrize(("median_ns", "outcome"), [
    (1.4e6, CheckOutcome.PASSED),  # 785 TFLOP/s, as measured
    (1.01 * SHORTEST_NS, CheckOutcome.PASSED),
    (0.99 * SHORTEST_NS, CheckOutcome.FAILED),
    (2e3, CheckOutcome.FAILED),  # an empty launch
    (0.0, CheckOutcome.FAILED),
])  # fmt: skip
def test_no_median_is_shorter_than_the_peak_allows(median_ns, outcome):
    found = timing_check(H200, LARGE, (), measured(median_ns))
    assert found.outcome is outcome
    if outcome is CheckOutcome.FAILED:
        assert found.detail.startswith("faster than the device: ")
        assert "H200" in found.detail


def test_without_a_known_peak_it_does_not_apply():
    found = timing_check(Target(TargetKind.NULL), LARGE, (), measured(1.0))
    assert found.outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize(("waited_s", "elapsed_s", "seconds", "samples_s", "words"), [
    (0.012, 0.010, 0.006, 0.006, ""),
    (0.06, 0.010, 0.006, 0.006, ""),  # the parent was late
    (0.1, 0.010, 0.006, 0.006, "its parent waited"),
    (0.012, 0.010, 0.006, 0.0006, "and the process counted"),
    (0.012, 0.2, 0.1, 0.1, "the samples add up to"),
    (0.0, 0.010, 0.006, 0.0001, ""),  # stored before the parent's clock was
])  # fmt: skip
def test_clocks_of_different_speed_are_wrong(waited_s, elapsed_s, seconds, samples_s, words):
    one = Round(
        samples_ns=(samples_s * 1e9 / 20,) * 10, method="wall_clock", launches_per_sample=2,
        seconds=seconds, elapsed_s=elapsed_s, waited_s=waited_s,
    )  # fmt: skip
    found = timing_check(H200, LARGE, (), measured(1.4e6), [one] * 30)
    assert (found.outcome is CheckOutcome.FAILED) == bool(words)
    assert words in found.detail


@pytest.fixture
def slow_device(monkeypatch):
    """Every device computes at most 0.25 GFLOP/s: for an 8×8×8 product, which the simulated device
    does in 2 µs, the time of `fast` is too short and that of the default is not."""
    limit = SpeedLimit(1024 / 1800e-9, "a pretend data sheet")
    monkeypatch.setattr(timing_sanity, "speed_limit", lambda *_: limit)


FAILED, NOT_VERIFIED = Verification.FAILED, Verification.NOT_VERIFIED


@pytest.mark.parametrize(("verify", "status"), [(True, FAILED), (False, NOT_VERIFIED)])
def test_one_faster_than_its_device_is_wrong(make_plan, run_plan, slow_device, verify, status):
    ran = run_plan(make_plan(verify=verify))
    assert ran["default"].outcome is Outcome.OK
    assert (ran["default"].verdict.checks.get("timing_sanity") == "passed") is verify
    record = ran["fast"]
    assert (record.outcome, record.stage) == (Outcome.WRONG, Stage.MEASURE)
    assert record.measurement is None
    assert "a pretend data sheet" in record.reason
    assert record.verdict.status is status
    assert record.reproduce.startswith("gemmetry profile ")
    assert ran.summary.exit_status == 1
