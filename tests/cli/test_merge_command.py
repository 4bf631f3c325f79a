from __future__ import annotations


def test_merge_makes_a_new_experiment(experiments):
    merged = experiments("merge", "a", "b", "--into", "ab")
    assert merged.status == 0
    assert merged.stdout.startswith("ab: 2 records")
    assert experiments("report", "ab").status == 0
    assert experiments("merge", "a", "b", "--into", "ab").status == 2
    assert experiments("merge", "a", "--into", "c").status == 2
    assert experiments("merge", "a", "b", "-o", "other").stdout.startswith("other: ")
