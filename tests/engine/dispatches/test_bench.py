from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Stage
from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.bench import Bench
from gemmetry.engine.protocol import Hello, Open, Sample, Trying, WireDispatch
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.providers.numpy_provider.provider import NumpyProvider

SMALL = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


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


class Prepared(NullProvider):
    """Notes which targets were prepared, and fails."""

    def __init__(self):
        super().__init__({})
        self.prepared = []

    def prepare(self, target):
        self.prepared.append(target.kind)
        raise RuntimeError("no such device")


@pytest.mark.parametrize("kind", [TargetKind.CUDA, TargetKind.NULL])
def test_a_gpu_is_opened_before_its_first_dispatch(tmp_path, kind):
    folder, channel = str(tmp_path), Recorder()
    target = Target(kind, "sm_90" if kind is TargetKind.CUDA else "", 0)
    hello = Hello("null", {}, target, RunSettings(), folder, folder, folder, 1, False)
    provider = Prepared()
    serving = Bench(channel, provider, hello, Workspace(generated=tmp_path, jobs=1, force=False))
    assert provider.prepared == ([kind] if kind is TargetKind.CUDA else [])
    serving.handle(Open(()))
    assert channel.sent == [], "what failed is left to the first dispatch"


def test_sampling_begins_without_what_verification_kept_on_the_device(tmp_path, monkeypatch):
    folder = str(tmp_path)
    null = Target(TargetKind.NULL)
    hello = Hello("null", {}, null, RunSettings(), folder, folder, folder, 1, False)
    serving = Bench(
        Recorder(), NullProvider({}), hello, Workspace(generated=tmp_path, jobs=1, force=False)
    )
    serving.handle(Open((WireDispatch(7, str(SMALL), Configuration("default")),)))
    cleared = []
    monkeypatch.setattr(serving._on_device, "clear", lambda: cleared.append(True))
    serving.handle(Sample(((7, 1),)))
    assert cleared == [True]
