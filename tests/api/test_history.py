from __future__ import annotations

import shutil

import pytest

import gemmetry
from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.engine.schema import JOURNAL_NAME, FolderLock
from gemmetry.history import api as history
from gemmetry.history.folder import append

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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with three experiments, whose results are equal."""
    folder = tmp_path_factory.mktemp("made")
    for name in "abc":
        gemmetry.profile(
            providers="null", shapes="64x64x64", device="null", verification_level="quick",
            experiment=folder / name,
        )  # fmt: skip
    return folder


@pytest.fixture
def experiments(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return [tmp_path / name for name in "abc"]


@pytest.mark.parametrize("harm", ["missing", "damaged", "empty"])
def test_experiments_are_added_together_or_not_at_all(experiments, tmp_path, harm):
    first, second, third = experiments
    store = tmp_path / "store"
    history.add(first, store=store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    journal = third / JOURNAL_NAME
    content = journal.read_bytes()
    if harm == "missing":
        journal.unlink()
    else:
        journal.write_bytes(b"\xff" * len(content) if harm == "damaged" else b"")
    with pytest.raises(GemmetryError, match=str(third)):
        history.add(second, third, store=store)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before
    with pytest.raises(GemmetryError, match=str(third)):
        history.add(second, third, store=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    journal.write_bytes(content)
    added, _ = history.add(second, third, second, first, store=store)
    assert [one.state for one in added] == ["added", "added", "same", "same"]
    assert len(history.load(store).devices[0].history.runs) == 3


def test_nobody_writes_between_the_experiments_of_one_addition(experiments, tmp_path, monkeypatch):
    store, locked = tmp_path / "store", []
    read = history.read_history

    def read_while_another_tries(folder):
        with pytest.raises(RequestError, match="in use"):
            FolderLock(folder, option="--store")
        locked.append(folder)
        return read(folder)

    monkeypatch.setattr(history, "read_history", read_while_another_tries)
    added, _ = history.add(*experiments, store=store)
    assert locked == [store]
    assert [one.state for one in added] == ["added"] * 3
    FolderLock(store).release()
