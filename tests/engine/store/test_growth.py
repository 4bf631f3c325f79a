from __future__ import annotations

import contextlib

import msgspec
import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import Verdict
from gemmetry.engine.experiment import add_plan
from gemmetry.engine.schema import Lane, PlanBatch, connect_writer, create_journal, store_plan

NULL = Lane(1, "null", {}, Target(TargetKind.NULL))
FIRST = PlanBatch([(1, "a"), (2, "b")], [(1, "x")], [(1, 1, 1, 1), (2, 2, 1, 1)])


@pytest.fixture
def journal(tmp_path):
    connection = create_journal(tmp_path / "journal.sqlite")
    store_plan(connection, [NULL], [FIRST])
    connection.close()
    with contextlib.closing(connect_writer(tmp_path / "journal.sqlite")) as connection:
        yield connection


def planned(connection):
    return connection.execute(
        "SELECT p.id, o.name, l.provider, c.name FROM plan p JOIN operations o ON o.id ="
        " p.operation JOIN lanes l ON l.id = p.lane JOIN configurations c ON"
        " c.id = p.configuration ORDER BY p.id"
    ).fetchall()


def test_what_is_missing_comes_behind_what_is_there(journal, make_record):
    """The plan's own numbers are others: its first lane is new, its operations in another order."""
    lanes = [
        Lane(1, "numpy", {}, Target(TargetKind.CPU)),
        Lane(2, "null", {"configurations": [1]}, NULL.target),
    ]
    refused = make_record(Outcome.UNSUPPORTED)
    batches = [
        PlanBatch([(1, "c"), (2, "b")], [(1, "y")], [(1, 1, 1, 1), (2, 2, 2, 1)], [(1, refused)]),
        PlanBatch([(3, "a")], [(2, "x")], [(3, 3, 2, 2), (4, 2, 2, 2), (5, 3, 1, 2)]),
    ]
    add_plan(journal, lanes, batches, {}, "here")
    assert planned(journal) == [
        (1, "a", "null", "x"), (2, "b", "null", "x"),
        (3, "c", "numpy", "y"), (4, "b", "null", "y"), (5, "a", "numpy", "x"),
    ]  # fmt: skip
    assert journal.execute("SELECT id, outcome FROM records").fetchall() == [(3, "unsupported")]
    stored = journal.execute("SELECT provider, options FROM lanes ORDER BY id").fetchall()
    assert stored == [("null", '{"configurations":[1]}'), ("numpy", "{}")]


def test_what_is_wanted_again_keeps_its_verdict_and_loses_its_record(journal, make_record):
    verdict = Verdict(status=Verification.PASSED)
    slow = make_record(Outcome.SKIPPED)
    added = PlanBatch([(1, "c")], [(1, "x")], [(1, 1, 1, 1)], [(1, slow)])
    add_plan(journal, [NULL], [added], {}, "here")
    add_plan(journal, [NULL], [], {3: verdict, 2: None}, "here")
    assert journal.execute("SELECT count(*) FROM records").fetchall() == [(0,)]
    ((number, environment, text, _),) = journal.execute("SELECT * FROM verdicts").fetchall()
    assert (number, environment) == (3, "here")
    assert msgspec.json.decode(text, type=Verdict) == verdict
