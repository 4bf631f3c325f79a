from __future__ import annotations

import importlib.metadata
import json

import pytest

from gemmetry.domain.errors import JournalDamagedError
from gemmetry.domain.record import Environment
from gemmetry.engine.schema import indented
from gemmetry.sweeps.training.manifest import (
    environment_changes,
    installed_versions,
    read_sweep_manifest,
    sweep_manifest,
    workload_facts,
)


def manifest(points, before=None, host="a"):
    return sweep_manifest(
        "sweep", {"nproc": 2}, [{"folder": name} for name in points], {"seed": 0},
        Environment(hostname=host), command="run", before=before,
    )  # fmt: skip


def test_a_later_start_keeps_what_earlier_ones_planned():
    first = manifest(["a", "b"])
    second = manifest(["c", "a"], first, host="elsewhere")
    assert [point["folder"] for point in second["points"]] == ["c", "a", "b"]
    assert second["created"] == first["created"]
    assert len(second["sessions"]) == len(second["environments"]) == 2
    assert second["host"] == "elsewhere"


def test_changes_of_the_environment_are_named():
    before = json.loads(json.dumps(manifest(["a"])))
    assert environment_changes(before, Environment(hostname="a")) == ""
    assert environment_changes(before, Environment(hostname="a", driver="580")) == (
        "the environment has changed since the last start: driver: none vs 580"
    )
    assert environment_changes(None, Environment()) == ""
    assert environment_changes({"environment": "?"}, Environment()) == ""


def test_a_manifest_is_written_and_read(tmp_path):
    assert read_sweep_manifest(tmp_path) is None
    written = manifest(["a"])
    (tmp_path / "sweep.json").write_bytes(indented(written))
    assert read_sweep_manifest(tmp_path) == json.loads(json.dumps(written))


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_damaged_manifest_is_named(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(JournalDamagedError, match=r"sweep\.json") as error:
        read_sweep_manifest(tmp_path)
    assert "--fresh" in error.value.hint


def test_versions_of_installed_packages():
    assert installed_versions()["numpy"] == importlib.metadata.version("numpy")


def test_what_the_workload_recorded(tmp_path):
    nothing = dict.fromkeys(("world_size", "backend", "packages", "losses"))
    assert workload_facts(tmp_path) == nothing
    (tmp_path / "losses.json").write_text("[")
    (tmp_path / "facts_rank0.json").write_text("[]")
    assert workload_facts(tmp_path) == nothing
    (tmp_path / "losses.json").write_text('{"losses": [2.0, 1.5]}')
    (tmp_path / "facts_rank0.json").write_text(
        '{"world_size": 4, "backend": "nccl", "environment": {"packages": {"nccl": "2.28.9"}}}'
    )
    assert workload_facts(tmp_path) == {
        "world_size": 4, "backend": "nccl", "packages": {"nccl": "2.28.9"}, "losses": [2.0, 1.5]
    }  # fmt: skip
