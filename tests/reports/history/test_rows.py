from __future__ import annotations

from gemmetry.history.api import load
from gemmetry.history.folder import StoredHistory
from gemmetry.history.rows import event_groups


def test_changes_that_dispatches_share_are_one_row(histories):
    synthetic = histories.SyntheticHistory(shapes=5, runs=60)
    synthetic.slow(1.06, 20)
    synthetic.slow(1.1, 50, provider="triton", shape=2)
    synthetic.slow(1.1, 50, provider="iree", shape=3)
    synthetic.lost = {("iree", 0, 59)}
    stored = StoredHistory(runs={histories.DEVICE: synthetic.entries()})
    check = load(stored, latest=15, threshold=0.02)
    rows = event_groups([*check.lost, *check.events])
    assert [(row.first.cause, len(row.members)) for row in rows] == [
        ("lost", 1), ("kernel", 1), ("kernel", 1), ("host", 15),
    ]  # fmt: skip
    assert rows[-1].name.endswith(" and 14 more")
    assert "over 15 dispatches" in rows[-1].text
    assert rows[0].text == "it was ok and is crash now"
    assert [row.first.is_alarm for row in rows] == [True, True, True, False]
    assert "times as long (1." in rows[1].text
