from __future__ import annotations

import pytest

from gemmetry.domain.errors import JournalDamagedError, StorageError
from gemmetry.engine.external import JobEnd, JobJournal, JobOutcome, read_ends

OK = JobEnd(outcome=JobOutcome.OK, exit_status=0, seconds=1.5)
FAILED = JobEnd(outcome=JobOutcome.FAILED, reason="exit status 1", exit_status=1, log_tail="a\nb")


@pytest.fixture
def path(tmp_path):
    """A journal of two jobs that ended and one that runs."""
    path = tmp_path / "journal.jsonl"
    with JobJournal(path) as journal:
        for name, end in (("a", OK), ("b", FAILED)):
            journal.start(name, "then")
            journal.end(name, "now", end)
        journal.start("c", "then")
    return path


def test_ends_are_read_again_and_a_job_that_starts_again_has_none(path):
    with JobJournal(path) as journal:
        assert dict(journal.ends) == {"a": OK, "b": FAILED}
        journal.start("a", "later")
        assert list(journal.ends) == ["b"]
    with JobJournal(path) as journal:
        assert list(journal.ends) == ["b"]


@pytest.mark.parametrize("size", [1, 10, 30])
def test_a_line_that_was_cut_off_is_dropped(path, size):
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:size].rstrip(b"\n"))
    with JobJournal(path) as journal:
        assert dict(journal.ends) == {"a": OK, "b": FAILED}
        journal.start("d", "then")
        journal.end("d", "now", OK)
    with JobJournal(path) as journal:
        assert list(journal.ends) == ["a", "b", "d"]


def test_reading_the_ends_alone_writes_nothing(path):
    content = path.read_bytes() + b'{"event": "sta'
    path.write_bytes(content)
    assert dict(read_ends(path)) == {"a": OK, "b": FAILED}
    assert path.read_bytes() == content
    with pytest.raises(StorageError):
        read_ends(path.with_name("none"))
    assert not path.with_name("none").exists()


def test_a_damaged_line_is_named(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{\n", *lines[2:]]))
    before = path.read_bytes()
    with pytest.raises(JournalDamagedError, match=r"journal\.jsonl:2"):
        JobJournal(path)
    assert path.read_bytes() == before


def test_a_journal_that_cannot_be_written(tmp_path):
    with pytest.raises(StorageError, match="nothing"):
        JobJournal(tmp_path / "nothing" / "journal.jsonl")
