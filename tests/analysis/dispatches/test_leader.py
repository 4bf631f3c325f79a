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


@pytest.mark.parametrize(
    ("table", "leader", "ratios"),
    [
        # numpy is as fast as torch on the second, so that torch is shown to be fastest on one.
        ({"torch": (200, 100, 100), "iree": (100, 50, 200), "numpy": (50, 100, 10)},
         ("torch", False, 3, 2, 1), (2, 1, 0.5)),
        # Equal wins are decided over all operations.
        ({"torch": (900, 10, 100), "iree": (100, 100, 90), "numpy": (10, 9, 101)},
         ("iree", False, 3, 1, 1), (100 / 900, 10, 90 / 101)),
    ],
)  # fmt: skip
def test_who_is_fastest_most_often_and_by_how_much(make_record, leader_of, table, leader, ratios):
    found = leader_of(speeds(make_record, table))
    shown = (found.name, found.is_configuration, found.operations, found.fastest, found.shown)
    assert shown == leader
    assert found.ratio == pytest.approx(np.prod(ratios) ** (1 / 3))


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
