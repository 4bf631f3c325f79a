from __future__ import annotations

import pytest

from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import Trait, Verdict
from gemmetry.selftest.kill_matrix import kill_matrix
from gemmetry.selftest.provider import Carrier, Mutant

OPERATION = "matmul_8x8x8_f32t_f32t_f32t"


def mutant(
    number, *, is_bug=True, killed_by=("values",), carrier=Carrier.HOST, declared=(),
    is_unseen=False,
):  # fmt: skip
    return Mutant(
        number, "something", "what is wrong", carrier, OPERATION, is_bug=is_bug,
        killed_by=killed_by if is_bug else (), declared=declared, is_unseen=is_unseen,
    )  # fmt: skip


@pytest.fixture
def record_of(make_record):
    """A record of a kernel; `checks` are texts of a verdict."""

    def make(item, outcome=Outcome.OK, *, device="cpu", rivals=None, **checks):
        failed = [name for name, text in checks.items() if text.startswith("failed")]
        warned = [name for name, text in checks.items() if text.startswith("warned")]
        status = (
            Verification.FAILED if failed else Verification.WARNED if warned
            else Verification.PASSED if checks else Verification.NOT_VERIFIED
        )  # fmt: skip
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if outcome is Outcome.OK else f"{outcome}: why",
            stage=None if outcome is Outcome.OK else Stage.VERIFY,
            verdict=Verdict(status=status, checks=checks, rivals=rivals or {}), device=device,
        )  # fmt: skip

    return make


def test_a_failed_check_kills(record_of):
    item = mutant(1)
    record = record_of(item, Outcome.WRONG, form="passed", values="failed: 3 wrong", repeat="w")
    matrix = kill_matrix([item], [record])
    (result,) = matrix.results
    assert result.is_killed
    assert result.is_killed_as_planned
    assert result.killed_by == ("values",)
    assert result.cells == {"form": "passed", "values": "failed", "repeat": "w"}
    assert (matrix.mutants_total, matrix.mutants_killed, matrix.is_perfect) == (1, 1, True)
    assert matrix.kills == {"form": 0, "values": 1, "repeat": 0}
    assert matrix.sole_kills["values"] == 1


@pytest.mark.parametrize(
    "outcome", [Outcome.CRASH, Outcome.TIMEOUT, Outcome.LAUNCH_ERROR, Outcome.OUT_OF_MEMORY]
)
def test_an_outcome_without_a_verdict_kills_under_its_own_name(record_of, outcome):
    item = mutant(17, killed_by=())
    matrix = kill_matrix([item], [record_of(item, outcome)])
    assert matrix.results[0].killed_by == (str(outcome),)
    assert matrix.checks == (str(outcome),)
    assert matrix.mutants_killed == 1
    assert matrix.results[0].is_killed_as_planned


def test_a_carrier_whose_right_kernels_crash_too_kills_no_mutant(record_of):
    bug, right = (mutant(5, is_bug=is_bug, carrier=Carrier.TRITON) for is_bug in (True, False))
    other = mutant(6)
    crashed = [record_of(item, Outcome.CRASH) for item in (bug, right)]
    matrix = kill_matrix(
        [bug, right, other], [*crashed, record_of(other, Outcome.WRONG, values="failed: 1 wrong")]
    )
    assert (matrix.mutants_total, matrix.mutants_killed) == (1, 1)
    assert matrix.false_alarms == []
    assert {item.name for item in matrix.broken} == {bug.configuration, right.configuration}
    assert "triton does not work on cpu" in matrix.broken[0].reason
    assert not matrix.is_perfect
    # Where one of them reached a check, the others failed for reasons of their own.
    passed = record_of(right, values="passed")
    assert kill_matrix([bug, right], [crashed[0], passed]).mutants_killed == 1


def test_unseen_kernels_are_scored_apart(record_of):
    seen = mutant(1)
    killed, survivor = (mutant(n, is_unseen=True, killed_by=()) for n in (1, 2))
    flagged = mutant(1, is_unseen=True, is_bug=False)
    records = [
        record_of(seen, Outcome.WRONG, values="failed: x"),
        record_of(killed, Outcome.WRONG, later="failed: x"),
        record_of(survivor, values="passed"),
        record_of(flagged, Outcome.WRONG, values="failed: x"),
    ]
    matrix = kill_matrix([seen, killed, survivor, flagged], records)
    assert (matrix.mutants_total, matrix.mutants_killed, matrix.correct_total) == (1, 1, 0)
    assert matrix.kills == {"values": 1, "later": 0}
    assert matrix.is_perfect
    assert (matrix.unseen.mutants_total, matrix.unseen.mutants_killed) == (2, 1)
    assert [result.name for result in matrix.unseen.survivors] == ["u02_something_host"]
    assert [result.name for result in matrix.unseen.false_alarms] == ["uok01_something_host"]
    assert kill_matrix([seen], records[:1]).unseen is None


@pytest.mark.parametrize("text", ["passed", "warned: errs more than usual"])
def test_a_warning_kills_nobody(record_of, text):
    item = mutant(36)
    matrix = kill_matrix([item], [record_of(item, values=text)])
    assert [r.name for r in matrix.survivors] == [item.configuration]
    assert (matrix.mutants_killed, matrix.is_perfect) == (0, False)


@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED, Outcome.SKIPPED, Outcome.COMPILE_ERROR])
def test_what_did_not_run_is_neither_killed_nor_counted(record_of, outcome):
    item, other = mutant(1), mutant(2)
    killed = record_of(other, Outcome.WRONG, values="failed: x")
    matrix = kill_matrix([item, other], [record_of(item, outcome), killed])
    assert (matrix.mutants_total, matrix.mutants_killed) == (1, 1)
    (missing,) = matrix.not_run
    assert (missing.name, missing.is_broken) == (item.configuration, True)
    assert str(outcome) in missing.reason
    assert not matrix.is_perfect


def test_absent_carriers_and_bugs_without_a_kernel_are_listed_with_their_reasons(record_of):
    here, there = mutant(1), mutant(2, carrier=Carrier.CUDA)
    matrix = kill_matrix(
        [here, there],
        [record_of(here, Outcome.WRONG, values="failed: x")],
        absent={there.configuration: "no CUDA device"},
        without_mutant={53: "right results"},
    )
    assert [(item.number, item.reason) for item in matrix.not_run] == [
        (2, "no CUDA device"), (53, "right results"),
    ]  # fmt: skip
    assert matrix.is_perfect
    assert matrix.mutants_total == 1


def test_a_kernel_that_the_run_did_not_reach_is_broken_not_killed(record_of):
    here, later = mutant(1), mutant(2)
    matrix = kill_matrix([here, later], [record_of(here, Outcome.WRONG, values="failed: x")])
    assert [item.name for item in matrix.broken] == [later.configuration]
    assert not matrix.is_perfect


@pytest.mark.parametrize(
    ("outcome", "text", "declared", "is_alarm"),
    [
        (Outcome.OK, "passed", (), False),
        (Outcome.OK, "warned: x", (), True),
        (Outcome.OK, "warned: x", (Trait.NONDETERMINISTIC,), False),
        (Outcome.WRONG, "failed: x", (Trait.NONDETERMINISTIC,), True),
        (Outcome.CRASH, "passed", (), True),
    ],
)
def test_a_right_kernel_must_pass(record_of, outcome, text, declared, is_alarm):
    item = mutant(2, is_bug=False, declared=declared)
    matrix = kill_matrix([item], [record_of(item, outcome, repeat=text)])
    assert (matrix.correct_total, len(matrix.false_alarms)) == (1, int(is_alarm))
    assert matrix.is_perfect is not is_alarm
    assert matrix.mutants_total == 0


def test_a_mutant_on_two_devices_counts_once_and_survives_if_it_does_on_one(record_of):
    item = mutant(3, carrier=Carrier.TRITON)
    records = [
        record_of(item, Outcome.WRONG, device="cpu", values="failed: x"),
        record_of(item, device="cuda:0", values="passed"),
    ]
    matrix = kill_matrix([item], records)
    assert (matrix.mutants_total, matrix.mutants_killed) == (1, 0)
    assert [result.record.device for result in matrix.survivors] == ["cuda:0"]


def test_a_mutant_killed_by_an_unexpected_check_is_reported(record_of):
    item = mutant(9, killed_by=("tail_shapes",))
    matrix = kill_matrix([item], [record_of(item, Outcome.CRASH, form="passed")])
    assert matrix.results[0].is_killed
    assert not matrix.results[0].is_killed_as_planned


def test_checks_keep_the_order_in_which_they_run(record_of):
    items = [mutant(number) for number in (1, 2)]
    records = [
        record_of(items[0], Outcome.WRONG, form="passed", values="failed: x"),
        record_of(items[1], Outcome.WRONG, form="passed", written="passed", values="passed",
                  repeat="failed: x"),
    ]  # fmt: skip
    assert kill_matrix(items, records).checks == ("form", "written", "values", "repeat")


def test_other_harnesses_are_scored_on_the_available_results(record_of):
    bugs = [mutant(number) for number in (1, 2, 3)]
    right = mutant(1, is_bug=False)
    records = [
        record_of(bugs[0], Outcome.WRONG, values="failed: x", rivals={"loose": True, "abs": False}),
        record_of(bugs[1], Outcome.WRONG, values="failed: x", rivals={"loose": True, "abs": True}),
        record_of(bugs[2], Outcome.TIMEOUT),
        record_of(right, values="passed", rivals={"loose": True, "abs": False}),
    ]
    scores = kill_matrix([*bugs, right], records).rivals
    assert scores["loose"].judged == scores["abs"].judged == 2
    assert len(scores["loose"].let_through) == 2
    assert scores["abs"].let_through == (bugs[1].configuration,)
    assert scores["loose"].false_alarms == ()
    assert scores["abs"].false_alarms == (right.configuration,)
    assert scores["abs"].correct_judged == 1
    assert (scores["abs"].wrong_judged, len(scores["abs"].wrong_let_through)) == (2, 1)
