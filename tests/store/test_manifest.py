from __future__ import annotations

import pytest

from gemmetry.domain.errors import JournalDamagedError
from gemmetry.engine.schema import (
    Manifest,
    indented,
    plan_differences,
    read_manifest,
    write_manifest,
)


def test_a_manifest_reads_back(tmp_path):
    manifest = Manifest(name="n", plan_hash="h", document={"a": [1]}, created="2026-01-01")
    manifest = manifest.with_command("one").with_command("two").with_command("one")
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert manifest.commands == ("one", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_no_manifest_is_none(tmp_path):
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "{", '{"name": 1}', '{"name": "n", "plan_hash": "h", "format_version": 9}']
)
def test_a_manifest_that_does_not_read_is_reported(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(JournalDamagedError):
        read_manifest(tmp_path)


def test_differences_of_plans_are_reported_by_key_and_value():
    theirs = {"name": "n", "trace": {"repeats": 5, "wait": 1}, "long": ["x"] * 50, "gone": None}
    ours = {"name": "n", "trace": {"repeats": 3, "wait": 1}, "long": ("x",) * 51, "new": "a"}
    reported = plan_differences(theirs, ours)
    assert reported == 'trace.repeats (5, now 3), long, new (null, now "a")'
    assert plan_differences(theirs, {**theirs, "long": ("x",) * 50}) == ""
    many = {str(number): number for number in range(9)}
    assert plan_differences({}, many).endswith("3 (null, now 3) and 5 more")


def test_a_document_is_indented_and_has_null_for_what_json_lacks():
    text = indented({"loss": float("nan"), "ranks": [0]})
    assert text == b'{\n  "loss": null,\n  "ranks": [\n    0\n  ]\n}\n'
