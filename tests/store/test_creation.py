from __future__ import annotations

import pytest

from gemmetry.engine.schema import Manifest, create, read_manifest


def test_a_journal_exists_only_when_it_is_whole(tmp_path):
    def fail(connection):
        connection.execute("INSERT INTO operations VALUES(1, 'a')")
        raise KeyboardInterrupt

    manifest = Manifest(name="n", plan_hash="h")
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path, manifest, "", fail)
    assert list(tmp_path.iterdir()) == []
    create(tmp_path, manifest, "", lambda connection: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.sqlite", "manifest.json"]


def test_an_old_journal_goes_with_its_log(tmp_path):
    manifest = Manifest(name="n", plan_hash="h")
    create(tmp_path, manifest, "", lambda connection: None)
    (tmp_path / "journal.sqlite-wal").write_bytes(b"log")
    create(tmp_path, manifest, "", lambda connection: None)
    assert not (tmp_path / "journal.sqlite-wal").exists()
    assert (tmp_path / "previous" / "journal.sqlite-wal").read_bytes() == b"log"


def test_experiments_of_one_second_differ_in_when_they_were_created(tmp_path):
    made = [tmp_path / "a", tmp_path / "b"]
    for folder in made:
        folder.mkdir()
        create(folder, Manifest(name="n", plan_hash="h"), "", lambda connection: None)
    first, second = (read_manifest(folder).created for folder in made)
    assert first < second
