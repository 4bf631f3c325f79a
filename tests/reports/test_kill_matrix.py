from __future__ import annotations

import json

import pytest

from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import Outcome, RequestError, Stage, Verification
from gemmetry.domain.record import Trait, Verdict
from gemmetry.selftest.kill_matrix import (
    kill_matrix,
    kill_matrix_document,
    kill_matrix_files,
    print_kill_matrix,
)
from gemmetry.selftest.provider import Carrier, Mutant

OPERATION = "matmul_8x8x8_f32t_f32t_f32t"
FAILS = {"values": "failed: 3 wrong"}
PASSES = {"values": "passed"}


def mutant(number=1, carrier=Carrier.HOST, slug="something", **fields):
    is_planned = fields.get("is_bug", True) and not fields.get("is_unseen", False)
    fields = {"is_bug": True, "killed_by": ("values",) if is_planned else (), **fields}
    return Mutant(number, slug, f"the bug of {slug}", carrier, OPERATION, **fields)


@pytest.fixture
def matrix_of(make_record):
    """The matrix of these kernels, each with its outcome and the texts of its checks."""

    def record(item, outcome, checks, device="cpu", rivals=None, reason="{}: why"):
        found = {text.partition(":")[0] for text in checks.values()}
        status = (
            Verification.FAILED if "failed" in found else Verification.WARNED if "warned" in found
            else Verification.PASSED if checks else Verification.NOT_VERIFIED
        )  # fmt: skip
        is_ok = outcome is Outcome.OK
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if is_ok else reason.format(outcome), stage=None if is_ok else Stage.VERIFY,
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


CHECKS = (
    "form", "written", "inputs_unchanged", "red_zones", "values", "second_launch", "repeat",
    "integers", "selects_lhs", "selects_rhs", "tail_shapes", "special_values", "fresh_pointers",
    "changed_contents", "unordered_work", "after_timing", "timing_sanity",
)  # fmt: skip
FACTS = {
    "level": "standard",
    "experiment": "x",
    "machine": {"cpu": "AMD | EPYC", "devices": ["NVIDIA H200"], "gemmetry": "0.1.0"},
}


@pytest.fixture
def matrix(matrix_of):
    def row(outcome, found, *args, **fields):
        """The checks in `found` failed; those with a question mark warned."""
        item = mutant(*args, **fields)
        checks = {
            name: "failed: 3 wrong" if name in found else "warned: 2" if f"?{name}" in found
            else "passed" for name in CHECKS if outcome is not Outcome.TIMEOUT
        }  # fmt: skip
        rivals = {"allclose(1e-2)": item.number != 1, "DeepGEMM diff": True} if checks else {}
        return item, outcome, checks, "cpu", rivals, "verifying took too long"

    wrong, ok, new, right = Outcome.WRONG, Outcome.OK, {"is_unseen": True}, {"is_bug": False}
    far = mutant(10, Carrier.CUDA, "far_away")
    return matrix_of(
        row(wrong, ["values", "integers"], 1, slug="returns_zeros"),
        row(wrong, ["tail_shapes"], 5, slug="k_tail_dropped_and_a_name_that_is_long"),
        row(Outcome.TIMEOUT, [], 17, Carrier.TRITON, "hangs"),
        row(ok, ["?values"], 36, slug="f16_accumulator"),
        row(ok, [], 2, slug="split_k_atomic", **right),
        row(ok, ["?repeat"], 5, slug="same_sign", **right),
        row(wrong, ["red_zones"], 1, slug="new_and_wrong", **new),
        row(ok, [], 2, slug="new_and_missed", **new),
        row(wrong, ["values"], 1, slug="new_and_right", **new, **right),
        missing=[far], absent={far.configuration: "this machine has no CUDA device"},
        without_mutant={53: "its results are right"},
    )  # fmt: skip


def test_the_report(matrix, console_text, dumped, golden, tmp_path):
    """On a terminal of 80 columns, as a document, and as a page with a line for every kernel."""
    text = console_text(lambda console: print_kill_matrix(matrix, console), 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    document = json.loads(json.dumps(kill_matrix_document(matrix, FACTS), allow_nan=False))
    assert document["schema_version"] == SCHEMA_VERSION
    pages = []
    for devices in (["NVIDIA H200"], ["NVIDIA H200"] * 2, []):
        facts = {**FACTS, "machine": {**FACTS["machine"], "devices": devices}}
        kill_matrix_files(matrix, facts).write(tmp_path / "matrix.md")
        pages.append((tmp_path / "matrix.md").read_text())
    lines = dumped(*({key: value} for key, value in document.items()))
    golden("kill_matrix", "\f\n".join([text, lines, *pages]))


def test_every_plain_format_is_written(matrix, tmp_path):
    for suffix in (".csv", ".json", ".html", ".parquet", ".xlsx"):
        path = tmp_path / f"matrix{suffix}"
        kill_matrix_files(matrix, FACTS).write(path)
        assert path.stat().st_size > 100
    with pytest.raises(RequestError):
        kill_matrix_files(matrix, FACTS).write(tmp_path / "matrix.docx")
