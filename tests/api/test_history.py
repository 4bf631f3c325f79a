from __future__ import annotations

import json

import pytest

import gemmetry
from gemmetry.api import history
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.store.history.folder import append

KERNEL = "triton:matmul_128x256x256_bf16t_bf16t_f32t_default"


@pytest.fixture(scope="module")
def nights(tmp_path_factory, histories):
    """40 nights, in the last eight of which a kernel is 10 % slower."""
    synthetic = histories.SyntheticHistory(shapes=2, runs=40)
    synthetic.slow(1.1, 32, provider="triton", shape=1)
    folder = tmp_path_factory.mktemp("nights")
    append(folder, synthetic.entries())
    return folder


def test_data_frames_of_series_points_and_changes(nights):
    pytest.importorskip("polars")
    found = history.load(nights)
    assert found.has_alarm
    assert found.problems == []
    assert found.series().height == 6
    points = found.points("triton:matmul_128")
    assert points.height == 40
    assert points["dispatch"].unique().to_list() == [KERNEL]
    assert points["time"].is_sorted()
    ratio = points["median_ns"] / points["reference_ns"]
    assert ratio.to_list() == pytest.approx(points["ratio"].to_list())
    assert ratio[32:].median() == pytest.approx(1.1 * ratio[:32].median(), rel=0.01)
    alarms = found.changes().filter(found.changes()["alarm"])
    assert alarms["dispatch"].to_list() == [KERNEL]
    assert alarms["cause"].to_list() == ["kernel"]
    assert "has_alarm=True" in repr(found)


def test_what_counts_as_a_change_can_be_chosen(nights):
    assert not history.load(nights, threshold=0.2).has_alarm
    assert not history.load(nights, fail_on=()).has_alarm
    assert not history.load(nights, latest=3).has_alarm
    with pytest.raises(EmptySelectionError, match="no dispatch of the history matches 'iree2'"):
        history.load(nights).chosen("iree2")


def test_files_and_the_site_are_those_of_the_command_line(nights, tmp_path):
    found = history.load(nights)
    found.write(tmp_path / "check.json")
    assert json.loads((tmp_path / "check.json").read_text()) == json.loads(
        json.dumps(found.document())
    )
    found.write(tmp_path / "check.xml")
    assert b"<failure" in (tmp_path / "check.xml").read_bytes()
    found.write_site(tmp_path / "site", title="Ours")
    assert "Ours" in (tmp_path / "site" / "index.html").read_text()
    with pytest.raises(RequestError):
        found.write(tmp_path / "check.docx")


def test_experiments_are_added_once(tmp_path):
    profiled = gemmetry.profile(
        providers="null", shapes="64x64x64", device="null", experiment=tmp_path / "a"
    )
    folder = profiled.result_set.path
    store = tmp_path / "store"
    (first,), problems = history.add(folder, store=store, label="nightly", time="2026-01-02")
    assert (first.state, first.is_older, first.run.label, problems) == (
        "added", False, "nightly", [],
    )  # fmt: skip
    (again,), _ = history.add(folder, store=store)
    assert again.state == "same"
    assert len(history.load(store).check.devices[0].history.runs) == 1


def test_an_experiment_that_cannot_be_read_adds_nothing(tmp_path):
    gemmetry.profile(providers="null", shapes="64x64x64", device="null", experiment=tmp_path / "a")
    with pytest.raises(RequestError):
        history.add(tmp_path / "a", tmp_path / "missing", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
