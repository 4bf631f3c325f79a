from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import Record, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import journal as evidence_folders
from gemmetry.engine.journal import FAILURES, TEXT_NAME, EvidenceFolders, complete_text
from gemmetry.verification.comparison import ARRAYS_NAME, Evidence, load

OPERATION = parse_operation("matmul_4x4x4_f32t_f32t_f32t")


def dispatch_of(configuration="default", index=1):
    target = Target(TargetKind.CUDA, "sm_90", index)
    return Dispatch(OPERATION, Configuration(configuration), "user", target)


def evidence_of(check="values"):
    array = np.ones((4, 4), np.float32)
    return Evidence(check, OPERATION, (array, array), array * 3, array.astype(float) * 4, None)


@pytest.fixture
def folders(tmp_path):
    return EvidenceFolders(tmp_path / FAILURES, RunSettings(seed=7, distribution="normal"))


def test_the_first_failure_of_a_dispatch_is_kept_in_its_folder(folders, tmp_path):
    keep = folders.keeper(dispatch_of())
    path = keep(evidence_of("values"))
    assert path == keep(evidence_of("integers")) == f"{FAILURES}/cuda-1/user/{OPERATION}_default"
    assert load(tmp_path / path).check == "values"
    text = (tmp_path / path / TEXT_NAME).read_text()
    assert all(part in text for part in ("values", "seed 7", "distribution normal"))


def test_a_long_name_fits_a_file_system(folders):
    one = folders.keeper(dispatch_of("x" * 300))(evidence_of())
    other = folders.keeper(dispatch_of("x" * 301))(evidence_of())
    assert one != other
    assert all(len(part) < 255 for part in one.split("/"))


def test_arrays_that_are_too_large_leave_the_recipe(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(evidence_folders, "MAX_DISPATCH_BYTES", 100)
    path = folders.keeper(dispatch_of())(evidence_of())
    assert not (tmp_path / path / ARRAYS_NAME).exists()
    text = (tmp_path / path / TEXT_NAME).read_text()
    assert "not kept" in text and "seed 7" in text


def test_all_failures_together_have_a_limit(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(evidence_folders, "MAX_TOTAL_BYTES", 3000)
    kept = [folders.keeper(dispatch_of(name))(evidence_of()) for name in "abcd"]
    first, *_, last = [(tmp_path / path / ARRAYS_NAME).exists() for path in kept]
    assert (first, last) == (True, False)


def test_a_full_disk_costs_the_arrays_and_then_the_note(folders, tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(evidence_folders, "save", full)
    path = folders.keeper(dispatch_of("a"))(evidence_of())
    assert "No space left" in (tmp_path / path / TEXT_NAME).read_text()
    monkeypatch.setattr(evidence_folders.Path, "write_text", full)
    assert folders.keeper(dispatch_of("b"))(evidence_of()) is None


def test_reason_map_and_command_complete_the_text_however_often(folders, tmp_path):
    path = folders.keeper(dispatch_of())(evidence_of())
    verdict = Verdict(status=Verification.FAILED, evidence_path=path, error_map=("the map", "..#"))
    record = Record(
        dispatch="d", provider="user", target="cpu", device="cpu", operation=str(OPERATION),
        configuration="default", outcome=Outcome.WRONG, stage=Stage.VERIFY, reason="a bad row",
        distribution="normal", seed=7, flops=1, bytes=1, reproduce="gemmetry verify run x",
        verdict=verdict,
    )  # fmt: skip
    for _ in range(2):
        complete_text(tmp_path / path, record)
    text = (tmp_path / path / TEXT_NAME).read_text()
    assert text.count("a bad row") == text.count("..#") == 1
    assert "again         gemmetry verify run x\n" in text
    assert text.startswith("check         values\n")


def test_outputs_that_timing_left_wrong_are_kept_as_well(make_plan, run_plan, tmp_path):
    ran = run_plan(make_plan(("late", "wrong")))
    for configuration, check in (("late", "after_timing"), ("wrong", "values")):
        record = ran[configuration]
        assert record.outcome is Outcome.WRONG
        place = tmp_path / "experiment" / record.verdict.evidence_path
        found = load(place)
        assert found.check == check
        assert found.expected is not None
        assert record.reason in (place / TEXT_NAME).read_text()
    assert ran["default"].verdict.evidence_path is None
