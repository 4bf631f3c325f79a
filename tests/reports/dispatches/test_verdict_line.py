from __future__ import annotations

import dataclasses

import pytest

from gemmetry.dispatches.analysis import RunMarks, RunState, find_run_marks
from gemmetry.dispatches.comparison import Leader
from gemmetry.dispatches.labels import run_state_lines, verdict_line
from gemmetry.domain.errors import Outcome

LEADER = Leader(name="torch", is_configuration=False, operations=9, fastest=6, shown=4, ratio=1.32,
                marked=0, unverified=0)  # fmt: skip


def state(common=None, device="cpu"):
    return RunState(target=device, device=device, measured=63, common=common or {},
                    usual_half_width=0.11)  # fmt: skip


def marks(*states):
    return RunMarks({(one.target, one.device): one for one in states})


@pytest.fixture
def line(make_record):
    def run(leader, run_marks=None):
        record = make_record("matmul_8x8x8_f32t_f32t_f32t")
        return verdict_line([record], leader, run_marks or marks(state()))

    return run


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "torch is fastest on 6 of 9 operations (confirmed on 4), at 1.32× the speed of the "
             "best alternative by geometric mean; the usual 95 % interval is ±11 %."),
        ({"shown": 6}, "torch is fastest on 6 of 9 operations (all confirmed), at"),
        ({"shown": 0, "ratio": 1.01}, "torch has the shortest time on 6 of 9 operations, at 1.01× "
                                      "the speed of the best alternative by geometric mean, but no "
                                      "difference is shown on any;"),
        ({"operations": 1, "fastest": 1, "shown": 1}, "torch is fastest on the only operation, at"),
        ({"operations": 1, "fastest": 1, "shown": 0}, "only operation, at 1.32× the speed of the "
                                                      "best alternative, but no difference is "
                                                      "shown;"),
        ({"operations": 1, "fastest": 1, "shown": 0, "undecided": 1},
         "best alternative, but too little was measured to decide;"),
        ({"shown": 0, "undecided": 5}, "mean, but too little was measured to decide on 5;"),
        ({"undecided": 2}, "is fastest on 6 of 9 operations (confirmed on 4, 2 undecided), at"),
        ({"ratio": 0.79, "fastest": 3}, "No single provider leads: torch has the shortest time on "
                                        "3 of 9 operations, no other on more, but at 0.79× the "
                                        "speed of the best alternative by geometric mean;"),
        ({"marked": 1}, "; 1 of them is based on rows marked !;"),
        ({"marked": 3, "unverified": 9}, "none of its results were verified; 3 of them are based"),
        ({"unverified": 2}, "; not all of its results were verified;"),
        ({"imported": 9}, "; the best alternatives were imported, and not verified here;"),
        ({"imported": 2}, "; some of the best alternatives were imported, and not verified here;"),
    ],
)  # fmt: skip
def test_one_sentence_says_who_how_often_and_how_surely(line, changes, text):
    message = line(dataclasses.replace(LEADER, **changes))
    assert text in message
    assert message.count(". ") == 0
    assert message.endswith(".")


def test_what_most_rows_share_is_a_reason_for_care(line):
    message = line(LEADER, marks(state({"noisy": 57, "busy": 53})))
    assert message.endswith(
        "; most rows are marked noisy or busy: repeat it on a quiet machine before relying on it."
    )
    limited = line(LEADER, marks(state({"throttled": 63, "noisy": 60})))
    assert "lock the clocks" in limited
    assert "repeat it" not in limited
    both = line(LEADER, marks(state({"throttled": 63, "busy": 60})))
    assert "repeat it on a quiet machine" in both
    message = line(LEADER, marks(state({"few samples": 63})))
    assert message.endswith("most rows are marked few samples: gemmetry show explains them.")


def test_without_a_comparison_it_says_so(make_record):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    alone = [make_record(name)]
    nothing = find_run_marks([])
    assert verdict_line([], None, nothing) == ""
    assert "only torch was measured" in verdict_line(alone, None, nothing)
    crashed = make_record(name, "c", outcome=Outcome.CRASH, reason="no")
    assert verdict_line([*alone, crashed], None, nothing).endswith("; 1 dispatch failed.")
    apart = [*alone, make_record("matmul_9x8x8_f32t_f32t_f32t", provider="iree")]
    assert "no operation was measured with two of iree, torch" in verdict_line(apart, None, nothing)


def test_the_state_of_the_run_is_one_line_per_device():
    assert run_state_lines(marks(state())) == []
    (line,) = run_state_lines(marks(state({"noisy": 57, "busy": 53})))
    assert line == ("The run as a whole: 57 of 63 rows noisy, 53 busy; usual interval ±11 %; "
                    "! marks rows that stand out from this")  # fmt: skip
    one, two = run_state_lines(marks(state({"noisy": 57}), state({"boost": 60}, "cuda:0")))
    assert "whole on cpu:" in one
    assert "whole on cuda:0: 60 of 63 rows boost;" in two
