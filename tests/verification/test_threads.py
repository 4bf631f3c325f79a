from __future__ import annotations

import threading

from gemmetry.verification import comparison as threads
from gemmetry.verification.comparison import in_order


def test_results_come_in_the_order_of_the_items(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    release = threading.Event()

    def square(number):
        if number == 0:
            release.wait(10)  # The first item ends last.
        elif number == 3:
            release.set()
        return number**2

    assert list(in_order(square, range(4))) == [0, 1, 4, 9]


def test_one_processor_works_in_the_calling_thread(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 1)
    names = set(in_order(lambda _: threading.current_thread().name, range(3)))
    assert names == {threading.current_thread().name}


def test_a_single_item_needs_no_count_of_processors(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 1 / 0)
    assert list(in_order(str, [7])) == ["7"]
