from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation, parse_target
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.tuning import heuristics
from gemmetry.tuning.heuristics import ProposedTile, nearest, proposals

from .synthetic import spaces

H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")
SQUARE = parse_operation("matmul_512x512x512_bf16t_bf16n_bf16t")


@pytest.fixture
def answers(monkeypatch):
    """The requests to the library's process, which answers with these lines."""
    requests = []

    def answering(*lines, error="", status=-11):
        def run(command, **options):
            assert command[:2] == [sys.executable, "-m"]
            requests.append(heuristics.json.loads(options["input"]))
            return SimpleNamespace(stdout="\n".join(lines), stderr=error, returncode=status)

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
        return requests

    return answering


def test_each_precision_and_layout_has_a_process(answers):
    requests = answers("[[64, 128, 32, 3, 1]]")
    expected = {
        "matmul_512x512x512_bf16t_bf16n_bf16t": ("TST", "NT_ROW_MAJOR"),
        "matmul_16x32x64_e4m3t_e4m3n_bf16t": ("QQTST", "NT_ROW_MAJOR"),
        "matmul_16x32x64_tf32t_tf32t_f32t": ("SFS", "NN_ROW_MAJOR"),
        "matmul_16x32x64_f16n_f16n_f32n": ("HSS", "NN_COL_MAJOR"),
        "matmul_16x32x64_s8t_s8n_s32t": None, "batch_matmul_2x16x32x64_f16t_f16t_f16t": None,
    }  # fmt: skip
    operations = [parse_operation(name) for name in expected]
    found = proposals(operations, "triton", H200)
    assert list(found) == operations[:4]
    assert found[operations[0]] == [ProposedTile(64, 128, 32, 3, 1)]
    asked = [(one["precision"], one["layout"]) for one in requests]
    assert asked == [one for one in expected.values() if one]
    assert {(one["gpu"], one["backend"]) for one in requests} == {("H200_SXM", "TRITON")}
    assert requests[1]["shapes"] == [[16, 32, 64]]
    proposals(operations[:1], "cuda", H200)
    assert requests[-1]["backend"] == "CUTLASS3"


def test_a_crash_after_the_last_answer_does_not_matter_and_an_earlier_one_does(answers):
    answers("[]")
    assert proposals([SQUARE], "triton", H200) == {SQUARE: []}
    answers(error="Segmentation fault")
    with pytest.raises(EnvironmentFailure, match="0 of 1 shapes: Segmentation fault"):
        proposals([SQUARE], "triton", H200)


def test_a_process_that_hangs_is_ended(answers, monkeypatch):
    answers()
    hang = Mock(side_effect=subprocess.TimeoutExpired("it", 60))
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(EnvironmentFailure, match="more than 60 s"):
        proposals([SQUARE], "triton", H200)


def test_what_the_library_does_not_know_is_refused(answers, monkeypatch):
    answers()
    for target in (parse_target("cpu"), parse_target("hip-gfx942")):
        with pytest.raises(RequestError, match="do not know"):
            proposals([SQUARE], "triton", target)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(RequestError, match=r"not installed") as caught:
        proposals([SQUARE], "triton", H200)
    assert "gemmetry[tune]" in caught.value.hint


def test_the_nearest_configurations_have_the_proposed_sides():
    (space,) = spaces(((512, 6144, 4096),))
    found = nearest(space, [ProposedTile(128, 64, 64, 8, 1), ProposedTile(128, 64, 64, 9, 1),
                            ProposedTile(256, 128, 32, 3, 1)])  # fmt: skip
    tiles = [space.configurations[one].tile for one in found]
    assert tiles == [(128, 64, 64), (256, 128, 32)]
    assert space.configurations[found[0]].parameters["stages"] == 4


def test_the_library_itself():
    pytest.importorskip("nvMatmulHeuristics")
    operations = [parse_operation(f"matmul_{m}x4096x4096_bf16t_bf16n_bf16t") for m in (16, 4096)]
    found = proposals(operations, "triton", H200)
    few, many = (found[operation] for operation in operations)
    assert all(one.m >= 8 and one.k >= 16 for one in (*few, *many))
    assert few[0].m < many[0].m
