"""Kill matrices of made kernels. A line ``row`` of ``kill_matrix.txt`` has a mutant's number and
outcome, checks that failed or warned, and fields of :class:`Mutant`. ``absent`` and ``unreached``
are mutants that did not run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.cases import Case

from gemmetry.domain.errors import Outcome, RequestError, Stage, Verification
from gemmetry.domain.record import Verdict
from gemmetry.selftest.kill_matrix import (
    kill_matrix,
    kill_matrix_document,
    kill_matrix_files,
    print_kill_matrix,
)
from gemmetry.selftest.provider import Mutant

CASES = Path(__file__).with_name("kill_matrix.txt")
OPERATION = "matmul_8x8x8_f32t_f32t_f32t"
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


def mutant(number, carrier="host", slug="something", **fields):
    is_planned = fields.get("is_bug", True) and not fields.get("is_unseen", False)
    fields = {"killed_by": ["values"] if is_planned else [], **fields}
    fields |= {"number": number, "slug": slug, "bug": f"the bug of {slug}", "carrier": carrier}
    return msgspec.convert({**fields, "operation": OPERATION}, Mutant)


@pytest.fixture
def matrix_of(make_record):
    def record(item, outcome, failed, warned, device, rivals):
        checks = dict.fromkeys(CHECKS if failed is not None else (), "passed")
        checks |= dict.fromkeys(warned, "warned: 2") | dict.fromkeys(
            failed or (), "failed: 3 wrong"
        )
        status = (
            Verification.FAILED if failed else Verification.WARNED if warned
            else Verification.PASSED if checks else Verification.NOT_VERIFIED
        )  # fmt: skip
        is_ok = outcome is Outcome.OK
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if is_ok else f"{outcome}: why", stage=None if is_ok else Stage.VERIFY,
            verdict=Verdict(status=status, checks=checks, rivals=rivals), device=device,
        )  # fmt: skip

    def make(case):
        items, records, absent, others = {}, [], {}, {}
        for what, plain, given in case.calls():
            if what == "without":
                others[plain[0]] = plain[1]
                continue
            seen = {"failed": [], "warned": [], "device": "cpu", "rivals": {}}
            seen |= {name: given.pop(name) for name in seen.keys() & given.keys()}
            item = mutant(plain[0], **given)
            items[item.configuration] = item
            if what == "row":
                records.append(record(item, Outcome(plain[1]), **seen))
            elif what == "absent":
                absent[item.configuration] = plain[1]
        return kill_matrix([*items.values()], records, absent=absent, without_mutant=others)

    return make


def test_scores(case, matrix_of):
    """Mutants, killed ones, right kernels, false alarms, and what is not as it should be."""
    found = matrix_of(case)
    score = {"mutants": found.mutants_total, "killed": found.mutants_killed,
             "right": found.correct_total, "alarms": [one.name for one in found.false_alarms],
             "perfect": found.is_perfect,
             "survivors": [f"{one.name} on {one.record.device}"
                           for one in found.survivors]}  # fmt: skip
    lines = [(f"{'broken' if one in found.broken else 'not run'} {one.number}",
              {"name": one.name, "why": one.reason}) for one in found.not_run]  # fmt: skip
    case.check([("score", score), *lines])


@pytest.fixture
def matrix(matrix_of):
    return matrix_of(Case(CASES, "a run with everything"))


def test_the_report(matrix, console_text, dumped, golden, tmp_path):
    """The matrix on a terminal of 80 columns, as a document, and as a page with all kernels."""
    text = console_text(lambda console: print_kill_matrix(matrix, console), 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    document = json.loads(json.dumps(kill_matrix_document(matrix, FACTS), allow_nan=False))
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
