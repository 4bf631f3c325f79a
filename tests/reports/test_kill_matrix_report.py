from __future__ import annotations

import json

import pytest

from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import Outcome, RequestError, Stage, Verification
from gemmetry.domain.record import Verdict
from gemmetry.selftest.kill_matrix import (
    kill_matrix,
    kill_matrix_document,
    kill_matrix_files,
    print_kill_matrix,
)
from gemmetry.selftest.provider import Carrier, Mutant

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


@pytest.fixture
def matrix(make_record):
    def mutant(number, slug, is_bug=True, carrier=Carrier.HOST, is_unseen=False):
        return Mutant(number, slug, f"the bug of {slug}", carrier, OPERATION, is_bug=is_bug,
                       killed_by=("values",) if is_bug and not is_unseen else (),
                       is_unseen=is_unseen)  # fmt: skip

    def record(item, outcome, *found):
        """The checks in `found` failed; those with a question mark warned."""
        checks = {
            name: "failed: 3 wrong" if name in found else "warned: 2" if f"?{name}" in found
            else "passed" for name in CHECKS
        }  # fmt: skip
        status = (Verification.PASSED if not found else Verification.WARNED if "?" in found[0]
                  else Verification.FAILED)  # fmt: skip
        if outcome is Outcome.TIMEOUT:
            checks, status = {}, Verification.NOT_VERIFIED
        rivals = {"allclose(1e-2)": item.number != 1, "DeepGEMM diff": True} if checks else {}
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if outcome is Outcome.OK else "verifying took too long",
            stage=None if outcome is Outcome.OK else Stage.VERIFY,
            verdict=Verdict(status=status, checks=checks, rivals=rivals),
        )  # fmt: skip

    wrong, ok = Outcome.WRONG, Outcome.OK
    ran = [
        (mutant(1, "returns_zeros"), wrong, "values", "integers"),
        (mutant(5, "k_tail_dropped_and_a_name_that_is_long"), wrong, "tail_shapes"),
        (mutant(17, "hangs", carrier=Carrier.TRITON), Outcome.TIMEOUT),
        (mutant(36, "f16_accumulator"), ok, "?values"),
        (mutant(2, "split_k_atomic", is_bug=False), ok),
        (mutant(5, "same_sign", is_bug=False), ok, "?repeat"),
        (mutant(1, "new_and_wrong", is_unseen=True), wrong, "red_zones"),
        (mutant(2, "new_and_missed", is_unseen=True), ok),
        (mutant(1, "new_and_right", is_unseen=True, is_bug=False), wrong, "values"),
    ]
    far = mutant(10, "far_away", carrier=Carrier.CUDA)
    items = [row[0] for row in ran]
    return kill_matrix(
        [*items[:6], far, *items[6:]], [record(*row) for row in ran],
        absent={far.configuration: "this machine has no CUDA device"},
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
