from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.domain.outcome import Stage
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine.dispatches import bench
from gemmetry.engine.dispatches.bench import Answers, Bench
from gemmetry.engine.workers.protocol import Hello, Open, Trying, WireDispatch
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.providers.numpy_provider import NumpyProvider
from gemmetry.verification.references import cache as reference_cache

SMALL = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
OTHER = parse_operation("matmul_9x8x8_f32t_f32t_f32t")


class FakeExecutable:
    """Its device offers a float64 product and counts its use."""

    def __init__(self):
        self.device = self
        self.products = 0

    def float64_matmul(self):
        def multiply(a, b):
            self.products += 1
            return a.astype(np.float64) @ b.astype(np.float64)

        return multiply


def test_inputs_are_made_once_and_dropped_when_too_many(tmp_path, monkeypatch):
    answers = Answers(tmp_path, RunSettings())
    first = answers.inputs(SMALL)
    assert answers.inputs(SMALL) is first
    monkeypatch.setattr(bench, "KEPT_BYTES", 1)
    other = answers.inputs(OTHER)
    assert answers.inputs(OTHER) is other, "the latest stay"
    again = answers.inputs(SMALL)
    assert again is not first
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("providers", [("numpy",), ("device",)])
@pytest.mark.parametrize("limit", [1e12, 10.0])
def test_the_device_computes_references_that_are_large_or_when_asked(
    tmp_path, monkeypatch, providers, limit
):
    monkeypatch.setattr(bench, "HOST_REFERENCE_FLOPS", limit)
    monkeypatch.setattr(reference_cache, "FEWEST_FILE_FLOPS", 0)
    answers = Answers(tmp_path, RunSettings(verification_providers=providers))
    executable = FakeExecutable()
    reference = answers.reference(SMALL, executable)
    a, b = (array.astype(np.float64) for array in answers.inputs(SMALL))
    assert np.allclose(reference.value, a @ b, rtol=1e-12)
    assert (executable.products > 0) == (providers == ("device",) or limit == 10.0)
    before = executable.products
    assert Answers(tmp_path, RunSettings()).reference(SMALL, executable) is not reference
    assert executable.products == before, "the experiment's folder had it"


def test_no_reference_where_the_host_would_take_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "HOST_REFERENCE_FLOPS", 10.0)
    monkeypatch.setattr(bench, "host_flops_per_second", lambda: 1.0)
    answers = Answers(tmp_path, RunSettings())
    assert answers.reference(SMALL, FakeExecutable()) is not None, "the device computes it"
    host = FakeExecutable()
    host.float64_matmul = lambda: None
    assert answers.reference(OTHER, host) is None
    monkeypatch.setattr(bench, "host_flops_per_second", lambda: 1e9)
    assert answers.reference(OTHER, host) is not None


def test_the_host_is_measured():
    assert 1e8 < bench.host_flops_per_second() < 1e14
    assert bench.host_flops_per_second() == bench.host_flops_per_second()


class TooHopeful(NullProvider):
    """Predicts a tenth of what a launch takes."""

    def seconds_per_launch(self, dispatch):
        return super().seconds_per_launch(dispatch) / 10


class Recorder:
    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


@pytest.mark.parametrize(("configuration", "is_skipped"), [("slow_300", True), ("slow_10", False)])
def test_a_doubtful_prediction_is_settled_by_one_launch(tmp_path, configuration, is_skipped):
    settings = RunSettings(
        deadlines_s={**RunSettings().deadlines_s, Stage.VERIFY: 1.0}, repetitions=1
    )
    folder = str(tmp_path)
    hello = Hello("null", {}, Target(TargetKind.NULL), settings, folder, folder, folder, 1, False)
    channel = Recorder()
    workspace = Workspace(generated=tmp_path, jobs=1, force=False)
    serving = Bench(channel, TooHopeful({}), hello, workspace)
    wire = WireDispatch(7, str(SMALL), Configuration(configuration))
    serving.handle(Open((wire,)))
    opened = channel.sent[-1]
    assert opened.failure is None
    assert (Trying(7) in channel.sent) == is_skipped
    assert (opened.verdict is None) == is_skipped
    if is_skipped:
        assert "one launch took 0.3" in opened.skip_reason
    else:
        assert opened.skip_reason == ""


@pytest.mark.parametrize(("target", "provider", "is_known"), [
    (TargetKind.CPU, NumpyProvider, True), (TargetKind.NULL, NullProvider, False),
])  # fmt: skip
def test_an_opened_dispatch_says_what_a_sample_takes(tmp_path, target, provider, is_known):
    folder = str(tmp_path)
    settings = RunSettings(verify=False)
    hello = Hello(provider.name, {}, Target(target), settings, folder, folder, folder, 1, False)
    channel = Recorder()
    workspace = Workspace(generated=tmp_path, jobs=1, force=False)
    serving = Bench(channel, provider({}), hello, workspace)
    serving.handle(Open((WireDispatch(7, str(SMALL), Configuration("default")),)))
    assert channel.sent[-1].failure is None
    assert (channel.sent[-1].sample_s > 0) is is_known
