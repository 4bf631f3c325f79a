from __future__ import annotations

import threading

from gemmetry.numerics.references import in_order


def test_as_many_items_run_at_once_as_there_are_processors():
    meeting = threading.Barrier(2, timeout=10)
    assert list(in_order(lambda number: (meeting.wait(), number)[1], [5, 6], 2)) == [5, 6]


def test_one_processor_works_in_the_calling_thread():
    names = set(in_order(lambda _: threading.current_thread().name, range(3), 1))
    assert names == {threading.current_thread().name}
