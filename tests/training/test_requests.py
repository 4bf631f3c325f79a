from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.training import planning as requests
from gemmetry.sweeps.training.axes import CommunicationLibrary
from gemmetry.sweeps.training.planning import make_request, sweep_folder, sweep_identity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "train", "config": "tiny"}, "--config and --override"),
        ({"command": "train", "overrides": ["a.b=1"]}, "--config and --override"),
        ({"command": "train 'x"}, "--command: No closing quotation"),
        ({"command": " "}, "--command is empty"),
        ({"command": "train", "stats": True}, "--stats requires --rocprof"),
        ({"command": "train", "order": "sorted"}, "unknown order 'sorted'"),
        ({"command": "train", "library": "mpi"}, "unknown library 'mpi'"),
    ],
)
def test_requests_that_make_no_sense(options, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        make_request(**options)


def test_ranks_by_default(monkeypatch):
    monkeypatch.setattr(requests, "gpu_count", lambda: 8)
    assert make_request(config="tiny").launch.nproc == 2
    assert make_request(config="document").launch.nproc == 8
    assert make_request(config="document", nproc=4).launch.nproc == 4


def test_a_command_as_a_text_or_as_words():
    words = ("train", "--name", "a b")
    for given in ("train --name 'a b'", words):
        assert make_request(command=given).launch.command == words
    assert make_request(command=["train"], ncu=[]).launch.ncu == ()


def test_an_input_implies_rocprofv3():
    assert make_request(command="train").launch.rocprof is None
    found = make_request(command="train", rocprof_input=Path("x")).launch.rocprof
    assert found.input == Path("x").absolute()


def test_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = make_request(command="train")
    found = sweep_folder(request, None, resume=False, fresh=False)
    assert re.fullmatch(r"gemmetry-out/sweep_\d{8}_\d{6}", str(found))
    assert sweep_folder(request, Path("a"), resume=True, fresh=False) == Path("a")
    with pytest.raises(RequestError, match="exclude each other"):
        sweep_folder(request, Path("a"), resume=True, fresh=True)
    with pytest.raises(RequestError, match="--fresh requires --output"):
        sweep_folder(request, None, resume=False, fresh=True)


def test_the_latest_sweep_of_the_same_kind_is_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = make_request(command="train", library="nccl")
    first = sweep_folder(request, None, resume=True, fresh=False)
    assert first.parent == Path("gemmetry-out") and not first.exists()
    identity = sweep_identity(request, CommunicationLibrary.NCCL)
    for name, content in {
        "sweep_1": json.dumps({"identity": identity}),
        "sweep_2": json.dumps({"identity": identity}),
        "sweep_3": json.dumps({"identity": identity | {"nproc": 7}}),
        "sweep_4": "{",
    }.items():
        folder = Path("gemmetry-out", name)
        folder.mkdir(parents=True)
        (folder / "sweep.json").write_text(content)
    found = sweep_folder(request, None, resume=True, fresh=False)
    assert found == Path("gemmetry-out/sweep_2")
