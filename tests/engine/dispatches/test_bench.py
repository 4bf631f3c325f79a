from __future__ import annotations

import dataclasses
import math
import signal
from types import SimpleNamespace
from unittest.mock import Mock, call

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Target, TargetKind, parse_operation
from gemmetry.domain.errors import Stage
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import bench as inputs_and_references
from gemmetry.engine.bench import Bench, HangWatch, InputsAndReferences
from gemmetry.engine.candidates import LEAST_TRIAL_S, PROBE_DOUBT, LaunchBudget, job_of
from gemmetry.engine.protocol import Hello, Open, Sample, Trying, WireDispatch
from gemmetry.providers.null_provider.provider import NullExecutable, NullProvider
from gemmetry.providers.numpy_provider.provider import NumpyProvider
from gemmetry.verification import context as reference_cache
from gemmetry.verification.protocol import launches

NULL = Target(TargetKind.NULL)
SMALL = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


class TooHopeful(NullProvider):
    """Predicts a tenth of what a launch takes."""

    def seconds_per_launch(self, dispatch):
        return super().seconds_per_launch(dispatch) / 10


class Recorder(list):
    """A channel that keeps what is sent."""

    send = list.append


@pytest.fixture
def serve(tmp_path):
    """A bench of a provider, and its channel."""

    def make(provider, target=NULL, **settings):
        folder, channel = str(tmp_path), Recorder()
        values = RunSettings(**{"verification_level": "quick", **settings})
        hello = Hello(provider.name, {}, target, values, folder, folder, 1)
        return Bench(channel, provider, hello, Workspace(generated=tmp_path)), channel

    return make


def opening(configuration="default", **more):
    return Open((WireDispatch(7, str(SMALL), Configuration(configuration)),), **more)


@pytest.mark.parametrize(("configuration", "is_skipped"), [("slow_300", True), ("slow_10", False)])
def test_a_doubtful_prediction_is_settled_by_one_launch(serve, configuration, is_skipped):
    deadlines = {**RunSettings().deadlines_s, Stage.VERIFY: 1.0}
    level = {"verification_level": "standard"}
    serving, channel = serve(TooHopeful({}), deadlines_s=deadlines, repetitions=1, **level)
    serving.handle(opening(configuration))
    opened = channel[-1]
    assert opened.failure is None
    found = (Trying(7) in channel, opened.verdict is None, bool(opened.skip_reason))
    assert found == (is_skipped,) * 3
    assert opened.free_memory_bytes == (0 if is_skipped else 2**30)


@pytest.mark.parametrize(("target", "provider", "is_known"), [
    (TargetKind.CPU, NumpyProvider, True), (TargetKind.NULL, NullProvider, False),
])  # fmt: skip
def test_an_opened_dispatch_says_what_a_sample_takes(serve, target, provider, is_known):
    serving, channel = serve(provider({}), Target(target), verify=False)
    serving.handle(opening())
    assert channel[-1].failure is None
    assert (channel[-1].sample_s > 0) is is_known


@pytest.mark.parametrize("kind", [TargetKind.CUDA, TargetKind.NULL])
def test_a_gpu_is_opened_before_its_first_dispatch(serve, monkeypatch, kind):
    prepare = Mock(side_effect=RuntimeError("no such device"))
    monkeypatch.setattr(NullProvider, "prepare", prepare)
    target = Target(kind, "sm_90" if kind is TargetKind.CUDA else "", 0)
    serving, channel = serve(NullProvider({}), target)
    assert prepare.mock_calls == ([call(target)] if kind is TargetKind.CUDA else [])
    serving.handle(Open(()))
    assert channel == [], "what failed is left to the first dispatch"
    serving.handle(opening("compile_error"))
    assert (channel[-1].failure.kind, channel[-1].free_memory_bytes) == ("CompileError", 0)


SETTINGS = RunSettings(deadlines_s={**RunSettings().deadlines_s, Stage.VERIFY: 20.0})
VERIFIED = LaunchBudget(job_of(SETTINGS), verifies=True)
UNVERIFIED = LaunchBudget(job_of(SETTINGS), verifies=False)


def test_verification_that_would_pass_its_deadline_is_objected_to():
    fewest = launches("standard", 100.0)
    assert VERIFIED.limit_s == 20 / fewest
    assert VERIFIED.objection(0.9 * 20 / launches("standard", 0.0)) == ""
    assert f"--set deadlines.verify={9 * fewest} or --verification-level" in VERIFIED.objection(4.5)
    assert "took 11 s, more than the 10 s allowed" in VERIFIED.objection(11)
    assert UNVERIFIED.objection(9.9) == ""


def test_traces_that_would_pass_their_deadline_are_objected_to():
    budget = LaunchBudget(job_of(RunSettings(verify=False, trace=TraceSchedule())), verifies=False)
    assert budget.objection(4.7) == ""
    assert "--set deadlines.trace=250 or fewer repeats" in budget.objection(5.0)
    assert budget.limit_s == pytest.approx(120 / 25)


def test_a_prediction_that_leaves_doubt_asks_for_a_trial():
    most = launches("standard", 0.0)
    assert VERIFIED.is_doubtful(20 / launches("standard", 100.0) / PROBE_DOUBT * 1.01)
    assert not VERIFIED.is_doubtful(20 / most / PROBE_DOUBT * 0.99)
    assert UNVERIFIED.is_doubtful(10.1 / PROBE_DOUBT)
    assert not UNVERIFIED.is_doubtful(9.9 / PROBE_DOUBT)
    assert not VERIFIED.is_doubtful(None), "nothing is predicted"


@pytest.mark.parametrize("budget", [VERIFIED, UNVERIFIED])
def test_a_launch_that_the_trial_does_not_suffice_for_is_objected_to(budget):
    assert budget.objection(budget.trial_s * 1.01) != ""
    assert f"did not end within {budget.trial_s:.3g} s" in budget.overrun()


@pytest.mark.parametrize(("expected_s", "first_s", "later_s", "larger_s"), [
    (1e-3, 10.0, 10.0, 200.0), (0.2, 40.0, 40.0, 4e4), (None, math.inf, 30.0, math.inf),
])  # fmt: skip
def test_a_launch_has_hung_by_what_is_expected_or_was(expected_s, first_s, later_s, larger_s):
    watch = HangWatch(expected_s, 1e6, 120.0)
    assert watch.limit_s(1) == pytest.approx(first_s)
    with watch.watching():
        assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (first_s != math.inf)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert watch.limit_s(1) == pytest.approx(later_s)
    assert watch.limit_s(10**6) > watch.limit_s(1)
    assert watch.of_companion(1e9).limit_s(1) == pytest.approx(larger_s)


def test_a_trial_is_no_shorter_than_starting_another_worker():
    settings = dataclasses.replace(SETTINGS, max_seconds_per_launch=1e-3)
    hasty = LaunchBudget(job_of(settings), verifies=False)
    assert (hasty.limit_s, hasty.trial_s) == (1e-3, LEAST_TRIAL_S)
    assert "0.001 s" in hasty.overrun()


OTHER = parse_operation("matmul_9x8x8_f32t_f32t_f32t")


def executable(offers=True):
    """An executable whose device offers a float64 product, or does not; its product."""
    product = Mock(side_effect=lambda a, b: a.astype(np.float64) @ b.astype(np.float64))
    device = SimpleNamespace(float64_matmul=lambda: product if offers else None)
    return SimpleNamespace(device=device), product


def test_inputs_are_made_once_and_dropped_when_too_many(tmp_path, monkeypatch):
    known = InputsAndReferences(tmp_path, RunSettings())
    first = known.inputs(SMALL)
    assert known.inputs(SMALL) is first
    monkeypatch.setattr(inputs_and_references, "KEPT_BYTES", 1)
    other = known.inputs(OTHER)
    assert known.inputs(OTHER) is other, "the latest stay"
    again = known.inputs(SMALL)
    assert again is not first
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("providers", [("numpy",), ("device",)])
@pytest.mark.parametrize("limit", [1e12, 10.0])
def test_the_device_computes_large_or_requested_references(tmp_path, monkeypatch, providers, limit):
    monkeypatch.setattr(inputs_and_references, "HOST_REFERENCE_FLOPS", limit)
    monkeypatch.setattr(reference_cache, "FEWEST_FILE_FLOPS", 0)
    known = InputsAndReferences(tmp_path, RunSettings(verification_providers=providers))
    host, product = executable()
    reference = known.reference(SMALL, host)
    a, b = (array.astype(np.float64) for array in known.inputs(SMALL))
    assert np.allclose(reference.value, a @ b, rtol=1e-12)
    before = product.call_count
    assert (before > 0) == (providers == ("device",) or limit == 10.0)
    again = InputsAndReferences(tmp_path, RunSettings())
    assert again.reference(SMALL, host) is not reference
    assert product.call_count == before, "the experiment's folder had it"


def test_no_reference_where_the_host_would_take_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs_and_references, "HOST_REFERENCE_FLOPS", 10.0)
    monkeypatch.setattr(inputs_and_references, "host_flops_per_second", lambda: 1.0)
    known = InputsAndReferences(tmp_path, RunSettings())
    assert known.reference(SMALL, executable()[0]) is not None, "the device computes it"
    host, _ = executable(offers=False)
    assert known.reference(OTHER, host) is None
    monkeypatch.setattr(inputs_and_references, "host_flops_per_second", lambda: 1e9)
    assert known.reference(OTHER, host) is not None


def test_the_host_is_measured():
    found = inputs_and_references.host_flops_per_second()
    assert 1e8 < found < 1e14
    assert inputs_and_references.host_flops_per_second() == found


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_only_verified_is_closed_at_once(serve, monkeypatch, is_broken):
    """Closing takes time, and may fail; neither may concern what is sampled first."""
    close = Mock(side_effect=RuntimeError("it cannot be closed") if is_broken else None)
    monkeypatch.setattr(NullExecutable, "close", close)
    serving, channel = serve(NullProvider({}))
    cleared = Mock()
    monkeypatch.setattr(serving._on_device, "clear", cleared)
    serving.handle(opening(ahead=2, only_verifies=True))
    assert (channel[-1].failure is not None) is is_broken
    assert (channel[-1].verdict is None) is is_broken
    assert (close.call_count, cleared.call_count) == (1, 1)
    serving.handle(Sample(()))
    assert close.call_count == 1, "nothing is left to close when samples are taken"


def test_sampling_begins_without_what_verification_kept_on_the_device(serve, monkeypatch):
    serving, _ = serve(NullProvider({}))
    serving.handle(opening())
    cleared = Mock()
    monkeypatch.setattr(serving._on_device, "clear", cleared)
    serving.handle(Sample(((7, 1),)))
    assert cleared.call_count == 1
