from __future__ import annotations

import pytest

from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import Trait, Verdict
from gemmetry.selftest.kill_matrix import kill_matrix
from gemmetry.selftest.provider import Carrier, Mutant

OPERATION = "matmul_8x8x8_f32t_f32t_f32t"
FAILS = {"values": "failed: 3 wrong"}
PASSES = {"values": "passed"}


def mutant(number=1, carrier=Carrier.HOST, **fields):
    fields = {"is_bug": True, "killed_by": ("values",), **fields}
    if not fields["is_bug"]:
        fields["killed_by"] = ()
    return Mutant(number, "something", "what is wrong", carrier, OPERATION, **fields)


@pytest.fixture
def matrix_of(make_record):
    """The matrix of these kernels, each with its outcome and the texts of its checks."""

    def record(item, outcome, checks, device="cpu", rivals=None):
        found = {text.partition(":")[0] for text in checks.values()}
        status = (
            Verification.FAILED if "failed" in found else Verification.WARNED if "warned" in found
            else Verification.PASSED if checks else Verification.NOT_VERIFIED
        )  # fmt: skip
        is_ok = outcome is Outcome.OK
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if is_ok else f"{outcome}: why", stage=None if is_ok else Stage.VERIFY,
            verdict=Verdict(status=status, checks=checks, rivals=rivals or {}), device=device,
        )  # fmt: skip

    def make(*rows, missing=(), **options):
        items = list(dict.fromkeys([*(row[0] for row in rows), *missing]))
        return kill_matrix(items, [record(*row) for row in rows], **options)

    return make


def score(matrix):
    """Mutants, killed mutants, right kernels, flagged ones, and whether all is as it should be."""
    return (matrix.mutants_total, matrix.mutants_killed, matrix.correct_total,
            len(matrix.false_alarms), matrix.is_perfect)  # fmt: skip


RIGHT = mutant(is_bug=False)
VARIES = mutant(is_bug=False, declared=(Trait.NONDETERMINISTIC,))
ENDINGS = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.LAUNCH_ERROR, Outcome.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((mutant(), Outcome.WRONG, FAILS), (1, 1, 0, 0, True)),
        *[((mutant(killed_by=()), ending, {}), (1, 1, 0, 0, True)) for ending in ENDINGS],
        ((mutant(), Outcome.OK, PASSES), (1, 0, 0, 0, False)),
        ((mutant(), Outcome.OK, {"values": "warned: errs more"}), (1, 0, 0, 0, False)),
        ((RIGHT, Outcome.OK, PASSES), (0, 0, 1, 0, True)),
        ((RIGHT, Outcome.OK, {"repeat": "warned: x"}), (0, 0, 1, 1, False)),
        ((VARIES, Outcome.OK, {"repeat": "warned: x"}), (0, 0, 1, 0, True)),
        ((VARIES, Outcome.WRONG, {"repeat": "failed: x"}), (0, 0, 1, 1, False)),
        ((RIGHT, Outcome.CRASH, PASSES), (0, 0, 1, 1, False)),
    ],
)
def test_a_mutant_must_be_killed_and_a_right_kernel_must_pass(matrix_of, row, expected):
    assert score(matrix_of(row)) == expected


def test_a_carrier_whose_right_kernels_crash_too_kills_no_mutant(matrix_of):
    bug, right = (mutant(5, Carrier.TRITON, is_bug=is_bug) for is_bug in (True, False))
    other = (mutant(6), Outcome.WRONG, FAILS)
    matrix = matrix_of((bug, Outcome.CRASH, {}), (right, Outcome.CRASH, {}), other)
    assert score(matrix) == (1, 1, 0, 0, False)
    assert {item.name for item in matrix.broken} == {bug.configuration, right.configuration}
    assert "triton does not work on cpu" in matrix.broken[0].reason
    # Where one of them reached a check, the others failed for reasons of their own.
    assert matrix_of((bug, Outcome.CRASH, {}), (right, Outcome.OK, PASSES)).mutants_killed == 1


@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED, Outcome.SKIPPED, Outcome.COMPILE_ERROR])
def test_what_did_not_run_is_neither_killed_nor_counted(matrix_of, outcome):
    matrix = matrix_of((mutant(1), outcome, {}), (mutant(2), Outcome.WRONG, FAILS))
    assert score(matrix) == (1, 1, 0, 0, False)
    (missing,) = matrix.not_run
    assert (missing.name, missing.is_broken) == (mutant(1).configuration, True)
    assert str(outcome) in missing.reason


def test_kernels_that_are_not_here_are_listed_with_their_reasons(matrix_of):
    """One that the run did not reach is broken."""
    there = mutant(2, Carrier.CUDA)
    here = (mutant(1), Outcome.WRONG, FAILS)
    matrix = matrix_of(here, missing=[there], absent={there.configuration: "no CUDA device"},
                       without_mutant={53: "right results"})  # fmt: skip
    assert [(item.number, item.reason) for item in matrix.not_run] == [
        (2, "no CUDA device"), (53, "right results"),
    ]  # fmt: skip
    assert score(matrix) == (1, 1, 0, 0, True)
    matrix = matrix_of(here, missing=[there])
    assert [item.name for item in matrix.broken] == [there.configuration]
    assert not matrix.is_perfect


def test_a_mutant_on_two_devices_counts_once_and_survives_if_it_does_on_one(matrix_of):
    item = mutant(3, Carrier.TRITON)
    matrix = matrix_of((item, Outcome.WRONG, FAILS, "cpu"), (item, Outcome.OK, PASSES, "cuda:0"))
    assert score(matrix)[:2] == (1, 0)
    assert [result.record.device for result in matrix.survivors] == ["cuda:0"]
