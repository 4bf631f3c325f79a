from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import counting as counted
from gemmetry.engine.counting import CountedRequest
from gemmetry.engine.protocol import Hello
from gemmetry.engine.sanitizing import CANNOT
from gemmetry.providers.null_provider.provider import NullExecutable


def a_request(folder: Path, *configurations: str) -> Path:
    """A request for a dispatch with each of the configurations, by default one."""
    target = Target(TargetKind.NULL, "", 0)
    hello = Hello("null", {}, target, RunSettings(), str(folder), str(folder), 1)
    name = "matmul_8x8x8_f32t_f32t_f32t"
    dispatches = tuple((name, Configuration(one)) for one in configurations or ("fast",))
    path = folder / "request"
    path.write_bytes(msgspec.msgpack.encode(CountedRequest(hello, dispatches)))
    return path


@pytest.fixture
def events(monkeypatch):
    """The launches of a counted process, and what else a test notes."""
    noted: list[str] = []
    run = NullExecutable.run

    def launch(self, *arguments):
        noted.append("launch")
        run(self, *arguments)

    monkeypatch.setattr(NullExecutable, "run", launch)
    return noted


def test_the_dispatch_is_warmed_up_and_then_profiled_once(tmp_path, monkeypatch, events):
    driver = SimpleNamespace(
        cuProfilerStart=lambda: events.append("start"), cuProfilerStop=lambda: events.append("stop")
    )
    monkeypatch.setattr(counted, "_profiler", lambda kind: driver)
    monkeypatch.setattr(counted, "_range", None)  # a single one needs none
    assert counted.main(a_request(tmp_path)) == 0
    assert events == ["launch", "launch", "start", "launch", "stop"]


def test_what_cannot_be_built_is_a_status_of_its_own(tmp_path, capsys):
    assert counted.main(a_request(tmp_path, "no-such-behaviour")) == CANNOT
    assert "no-such-behaviour" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [TargetKind.NULL, TargetKind.HIP])
def test_only_cuda_has_a_profiler_that_is_started(kind: TargetKind):
    assert counted._profiler(kind) is None


def test_each_of_several_dispatches_has_its_own_range(tmp_path, monkeypatch, capsys, events):
    @contextmanager
    def a_range(kind, name):
        events.append(name)
        yield
        events.append("end")

    monkeypatch.setattr(counted, "_range", a_range)
    assert counted.main(a_request(tmp_path, "fast", "no-such-behaviour", "fast")) == 0
    warm = ["launch"] * counted.WARM_UP
    assert events == [*warm, "gemmetry_dispatch_0", "launch", "end",
                      *warm, "gemmetry_dispatch_2", "launch", "end"]  # fmt: skip
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"{counted.COUNTED} {number}" for number in (0, 2)]
    assert "no-such-behaviour" in captured.err
