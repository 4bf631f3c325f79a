from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gemmetry.dispatches.profile import profile, read_spec, stored_baseline
from gemmetry.domain.errors import RequestError, SpecError, StorageError
from gemmetry.domain.record import DispatchFinished, PlanReady
from gemmetry.domain.specs.model import ProfileSpec


def test_keyword_values_give_results(tmp_path):
    events = []
    results = profile(
        providers="null", shapes="64x64x64", experiment=tmp_path / "x", listener=events.append
    )
    assert len(results) == 2
    assert {record.configuration for record in results} == {"default", "fast"}
    assert isinstance(events[0], PlanReady)
    assert sum(isinstance(event, DispatchFinished) for event in events) == 2
    again = profile(providers="null", shapes="64x64x64", experiment=tmp_path / "x")
    assert [r.measurement for r in again] == [r.measurement for r in results]


def test_sources_of_a_spec():
    assert read_spec({"seed": 1}, {"seed": 2}).seed == 2
    assert read_spec(ProfileSpec(seed=3), {"dtypes": "f16"}).seed == 3
    with pytest.raises(SpecError, match="nonsense"):
        read_spec({"nonsense": 1})
    with pytest.raises(RequestError):
        read_spec("missing.yaml")


def test_mistakes_in_a_call_are_reported_by_the_keys_name(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("seed: 1\n")
    for source, values, names in (({"dtypes": "f33"}, {"seed": -1}, ["dtypes", "seed"]),
                                  (spec, {"dtypes": "f33"}, ["dtypes"])):  # fmt: skip
        with pytest.raises(SpecError) as caught:
            read_spec(source, values)
        assert [line.partition(":")[0] for line in caught.value.mistakes] == names
        assert str(caught.value).count("dtypes") == 1


def test_the_request_stays_with_the_results(tmp_path):
    folder = tmp_path / "x"
    profile(providers="null", shapes="8x8x8", baseline="null:default", experiment=folder)
    assert stored_baseline(folder) == "null:default"
    profile(providers="null", shapes="8x8x8", experiment=folder)
    assert stored_baseline(folder) is None
    assert stored_baseline(tmp_path) is None


def test_on_a_full_disk_the_request_stays_and_the_first_error_is_reported(tmp_path, monkeypatch):
    folder = tmp_path / "x"
    profile(providers="null", shapes="8x8x8", baseline="null:default", experiment=folder)
    before = (folder / "spec.yaml").read_bytes()
    real = Path.open

    def full(self, mode="r", *arguments, **options):
        file = real(self, mode, *arguments, **options)
        if "spec.yaml" in self.name and "w" in mode:
            file.close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageError, match=r"cannot write .*spec\.yaml: No space left") as caught:
        profile(providers="null", shapes="8x8x8", experiment=folder)
    assert "The disk is full" in caught.value.hint
    assert (folder / "spec.yaml").read_bytes() == before

    def fails(*_arguments, **_options):
        raise StorageError("no space left to write the journal", hint="Free some space.")

    monkeypatch.setattr("gemmetry.engine.run", fails)
    with pytest.raises(StorageError, match="the journal"):
        profile(providers="null", shapes="8x8x8", experiment=folder)
    assert (folder / "spec.yaml").read_bytes() == before
