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

    def record(item, outcome, *failed, warned=()):
        checks = {
            name: "failed: 3 wrong" if name in failed else "warned: 2" if name in warned
            else "passed" for name in CHECKS
        }  # fmt: skip
        status = (Verification.FAILED if failed else Verification.WARNED if warned
                  else Verification.PASSED)  # fmt: skip
        if outcome is Outcome.TIMEOUT:
            checks, status = {}, Verification.NOT_VERIFIED
        rivals = {"allclose(1e-2)": item.number != 1, "DeepGEMM diff": True} if checks else {}
        return make_record(
            OPERATION, item.configuration, provider="mutant", gflops=None, outcome=outcome,
            reason="" if outcome is Outcome.OK else "verifying took too long",
            stage=None if outcome is Outcome.OK else Stage.VERIFY,
            verdict=Verdict(status=status, checks=checks, rivals=rivals),
        )  # fmt: skip

    items = [
        mutant(1, "returns_zeros"),
        mutant(5, "k_tail_dropped_and_a_name_that_is_long"),
        mutant(17, "hangs", carrier=Carrier.TRITON),
        mutant(36, "f16_accumulator"),
        mutant(2, "split_k_atomic", is_bug=False),
        mutant(5, "same_sign", is_bug=False),
        mutant(10, "far_away", carrier=Carrier.CUDA),
        mutant(1, "new_and_wrong", is_unseen=True),
        mutant(2, "new_and_missed", is_unseen=True),
        mutant(1, "new_and_right", is_unseen=True, is_bug=False),
    ]
    records = [
        record(items[0], Outcome.WRONG, "values", "integers"),
        record(items[1], Outcome.WRONG, "tail_shapes"),
        record(items[2], Outcome.TIMEOUT),
        record(items[3], Outcome.OK, warned=("values",)),
        record(items[4], Outcome.OK),
        record(items[5], Outcome.OK, warned=("repeat",)),
        record(items[7], Outcome.WRONG, "red_zones"),
        record(items[8], Outcome.OK),
        record(items[9], Outcome.WRONG, "values"),
    ]
    return kill_matrix(
        items, records, absent={items[6].configuration: "this machine has no CUDA device"},
        without_mutant={53: "its results are right"},
    )  # fmt: skip


def test_the_console_fits_80_columns_and_shows_all(matrix, console_text):
    text = console_text(lambda console: print_kill_matrix(matrix, console), 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = text.splitlines()
    assert any("e values (1)" in line for line in lines)
    zeros = next(line for line in lines if "m01 returns zeros" in line)
    head = next(line for line in lines if line.startswith("Mutants"))
    assert zeros[head.index(" e ") + 1] == "●"
    assert zeros[head.index(" a ") + 1] == "·"
    survivor = next(line for line in lines if "m36 f16 accumulator" in line)
    assert survivor.startswith("!")
    assert "SURVIVES" in text
    assert "FALSE ALARM" in text
    assert "3 of 4 mutants killed (75%): 3 host, 1 triton; 4 bugs" in text
    assert "1 of 2 correct kernels flagged" in text
    assert "unseen: killed 1 of 2; correct kernels flagged: 1 of 1" in text
    assert "unseen survivor: u02_new_and_missed_host: the bug of new_and_missed" in text
    assert "unseen false alarm: uok01_new_and_right_host" in text
    wrong = next(line for line in lines if "u01 new and wrong" in line)
    assert wrong[head.index(" d ") + 1] == "●"
    assert "survivor: m36_f16_accumulator_host: the bug of f16_accumulator (values warned)" in text
    assert "killed by tail_shapes, not by values as planned" in " ".join(text.split())
    assert "allclose(1e-2) 2 of 3 0 of 1 0 of 2" in " ".join(text.split())
    assert "DeepGEMM diff 3 of 3 1 of 1 0 of 2" in " ".join(text.split())
    assert "1 cuda mutant: this machine has no CUDA device" in text
    assert "1 without a kernel: its results are right" in text


def test_the_document_is_json_with_the_promised_keys(matrix):
    document = json.loads(json.dumps(kill_matrix_document(matrix, FACTS), allow_nan=False))
    assert document["schema_version"] == SCHEMA_VERSION
    assert (document["mutants_total"], document["mutants_killed"]) == (4, 3)
    assert document["survivors"] == ["m36_f16_accumulator_host"]
    assert (document["correct_total"], document["false_alarms"]) == (2, ["ok05_same_sign_host"])
    assert [item["number"] for item in document["not_run"]] == [10, 53]
    assert document["checks"]["values"] == {"kills": 1, "sole_kills": 0}
    assert document["checks"]["timeout"]["sole_kills"] == 1
    assert document["rivals"]["DeepGEMM diff"]["asked"] == 3
    row = document["matrix"][0]
    assert row["killed_by"] == ["values", "integers"]
    assert row["rivals_let_it_through"] == {"allclose(1e-2)": False, "DeepGEMM diff": True}
    assert (row["checks"]["form"], row["is_killed"]) == ("passed", True)
    assert document["machine"]["devices"] == ["NVIDIA H200"]
    unseen = document["unseen"]
    assert (unseen["mutants_total"], unseen["mutants_killed"], unseen["correct_total"]) == (2, 1, 1)
    assert unseen["survivors"] == ["u02_new_and_missed_host"]
    assert unseen["false_alarms"] == ["uok01_new_and_right_host"]
    assert [row["name"] for row in unseen["matrix"]] == [
        "u01_new_and_wrong_host", "u02_new_and_missed_host", "uok01_new_and_right_host",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".json", ".html", ".parquet", ".xlsx"])
def test_every_plain_format_is_written(matrix, tmp_path, suffix):
    path = tmp_path / f"matrix{suffix}"
    kill_matrix_files(matrix, FACTS).write(path)
    assert path.stat().st_size > 100


def test_the_page_has_a_row_and_a_line_of_dots_for_every_kernel(matrix, tmp_path):
    path = tmp_path / "matrix.md"
    kill_matrix_files(matrix, FACTS).write(path)
    page = path.read_text()
    assert page.startswith("# Kill matrix\n")
    assert "AMD \\| EPYC, NVIDIA H200" in page
    assert "| 1 | m01 returns zeros | the bug of returns\\_zeros | values, integers |" in (
        page.replace("returns_zeros", "returns\\_zeros")
    )
    block = page.partition("```text\n")[2].partition("\n```")[0].splitlines()
    assert len(block) == len(matrix.results) + len(matrix.unseen.results) + 1
    assert "* unseen: killed 1 of 2; correct kernels flagged: 1 of 1" in page
    assert "| 1 | u01 new and wrong | the bug of new_and_wrong | red_zones |" in page
    zeros = next(line for line in block if line.startswith("m01"))
    assert [zeros[block[0].index(letter)] for letter in "aeh"] == ["·", "●", "●"]
    assert next(line for line in block if line.startswith("m36")).endswith("SURVIVES")
    for table in page.split("\n\n"):
        if table.startswith("| "):
            assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
    assert "| its results are right | 1 | number 53 of the list |" in page


@pytest.mark.parametrize(
    ("devices", "shown"),
    [(["NVIDIA H200"] * 2, "AMD \\| EPYC, 2 × NVIDIA H200."), ([], "AMD \\| EPYC.")],
)
def test_the_page_counts_equal_devices(matrix, tmp_path, devices, shown):
    path = tmp_path / "matrix.md"
    facts = {**FACTS, "machine": {**FACTS["machine"], "devices": devices}}
    kill_matrix_files(matrix, facts).write(path)
    assert f"gemmetry 0.1.0, on {shown}\n" in path.read_text()


def test_an_unknown_suffix_is_refused(matrix, tmp_path):
    with pytest.raises(RequestError, match="unknown suffix"):
        kill_matrix_files(matrix, FACTS).write(tmp_path / "matrix.docx")
