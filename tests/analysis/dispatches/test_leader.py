from __future__ import annotations

import numpy as np
import pytest

from gemmetry.dispatches.analysis import find_run_marks
from gemmetry.dispatches.comparison import find_leader
from gemmetry.domain.errors import Verification
from gemmetry.domain.record import ResultSet, Verdict

NAMES = [f"matmul_{n}x{n}x{n}_f32t_f32t_f32t" for n in (64, 128, 256)]


def rounds(record):
    noise = np.random.default_rng(len(record.dispatch + record.provider)).normal(1, 1e-3, 12)
    return {turn: [record.measurement.median_ns * noise[turn]] * 5 for turn in range(12)}


@pytest.fixture
def leader_of():
    def run(records):
        results = ResultSet(title="x", records=records, rounds=rounds)
        return find_leader(results, find_run_marks(records))

    return run


def speeds(make_record, table):
    """Records of {provider: speeds of the operations, None: not measured}."""
    return [
        make_record(name, provider=provider, gflops=speed)
        for provider, row in table.items()
        for name, speed in zip(NAMES, row, strict=True)
        if speed is not None
    ]


def test_who_is_fastest_most_often_and_by_how_much(make_record, leader_of):
    records = speeds(make_record, {
        "torch": (200, 100, 100), "iree": (100, 50, 200), "numpy": (50, 100, 10)})  # fmt: skip
    found = leader_of(records)
    assert (found.name, found.is_configuration) == ("torch", False)
    assert (found.operations, found.fastest) == (3, 2)
    assert found.shown == 1, "numpy is as fast on the second"
    assert found.ratio == pytest.approx((2 * 1 * 0.5) ** (1 / 3))


def test_equal_wins_are_decided_over_all_operations(make_record, leader_of):
    records = speeds(make_record, {
        "torch": (900, 10, 100), "iree": (100, 100, 90), "numpy": (10, 9, 101)})  # fmt: skip
    found = leader_of(records)
    # torch: 9 x 0.1 x 0.99, iree: 0.11 x 10 x 0.89, numpy: 0.01 x 0.09 x 1.01.
    assert (found.name, found.fastest) == ("iree", 1)
    assert found.ratio == pytest.approx((100 / 900 * 10 * 90 / 101) ** (1 / 3))


def test_configurations_compete_where_there_is_one_provider(make_record, leader_of):
    records = [make_record(NAMES[0], name, gflops=speed)
               for name, speed in (("tile32", 100.0), ("tile64", 150.0))]  # fmt: skip
    found = leader_of(records)
    assert (found.name, found.is_configuration, found.shown) == ("tile64", True, 1)
    assert found.ratio == pytest.approx(1.5)


def test_what_weakens_the_answer_is_counted(make_record, leader_of):
    records = speeds(make_record, {"torch": (200, 200, 200), "iree": (100, 100, 100)})
    unverified = Verdict(status=Verification.NOT_VERIFIED)
    records[0] = make_record(NAMES[0], marks=("drift: much",), verdict=unverified)
    found = leader_of(records)
    assert (found.marked, found.unverified) == (1, 1)
