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

NULL = Target(TargetKind.NULL)
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


@pytest.fixture
def serve(tmp_path):
    """A bench of a provider, and its channel."""

    def make(provider, target=NULL, **settings):
        folder, channel = str(tmp_path), Recorder()
        values = RunSettings(**settings)
        hello = Hello(provider.name, {}, target, values, folder, folder, folder, 1, False)
        workspace = Workspace(generated=tmp_path, jobs=1, force=False)
        return Bench(channel, provider, hello, workspace), channel

    return make


def opening(configuration="default"):
    return Open((WireDispatch(7, str(SMALL), Configuration(configuration)),))


@pytest.mark.parametrize(("configuration", "is_skipped"), [("slow_300", True), ("slow_10", False)])
def test_a_doubtful_prediction_is_settled_by_one_launch(serve, configuration, is_skipped):
    deadlines = {**RunSettings().deadlines_s, Stage.VERIFY: 1.0}
    serving, channel = serve(TooHopeful({}), deadlines_s=deadlines, repetitions=1)
    serving.handle(opening(configuration))
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
def test_an_opened_dispatch_says_what_a_sample_takes(serve, target, provider, is_known):
    serving, channel = serve(provider({}), Target(target), verify=False)
    serving.handle(opening())
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
def test_a_gpu_is_opened_before_its_first_dispatch(serve, kind):
    provider = Prepared()
    target = Target(kind, "sm_90" if kind is TargetKind.CUDA else "", 0)
    serving, channel = serve(provider, target)
    assert provider.prepared == ([kind] if kind is TargetKind.CUDA else [])
    serving.handle(Open(()))
    assert channel.sent == [], "what failed is left to the first dispatch"


def test_sampling_begins_without_what_verification_kept_on_the_device(serve, monkeypatch):
    serving, _ = serve(NullProvider({}))
    serving.handle(opening())
    cleared = []
    monkeypatch.setattr(serving._on_device, "clear", lambda: cleared.append(True))
    serving.handle(Sample(((7, 1),)))
    assert cleared == [True]
