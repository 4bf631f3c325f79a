"""The diagnosis of kernels with known bottlenecks, whose counters were collected on an H200."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confusion import Answered, answers, confusion_table, main

from gemmetry.counters.diagnosis.gates import diagnose
from gemmetry.counters.diagnosis.work import gemm_work
from gemmetry.counters.reading import read_counters
from gemmetry.domain.names import parse_operation
from gemmetry.reports.tables.markdown import markdown_table

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "tests/data/counters/planted_h200"


@pytest.fixture(scope="module")
def rows() -> list[Answered]:
    return list(answers(RESULTS))


def test_every_severe_cause_and_every_full_product_is_named(rows: list[Answered]) -> None:
    planted = [one for one in rows if one.cause and not one.kernel.endswith("_mild")]
    assert len(planted) == 18 + 5
    assert [one.kernel for one in planted if one.named != "yes"] == []


def test_products_on_tensor_cores_are_not_blamed_for_stalls(rows: list[Answered]) -> None:
    full = [one for one in rows if one.cause == "tensor_roof"]
    assert all(one.findings[0] == "tensor_roof" for one in full)
    blamed = [name for one in full for name in one.findings if name.startswith("occupancy")]
    assert blamed == []
    assert all("occupancy bound" in one.conclusions for one in full)


def test_the_page_has_this_table(rows: list[Answered]) -> None:
    page = (ROOT / "docs/diagnosis.md").read_text()
    assert "\n".join(markdown_table(confusion_table(rows))) in page


def test_operations_agree_with_the_model_for_every_product() -> None:
    products = json.loads((RESULTS / "gemms.json").read_text())
    for product, launch in zip(products, read_counters(RESULTS / "gemms.csv.gz"), strict=True):
        work = gemm_work(parse_operation(product.split(":")[1]))
        operations = diagnose(launch, work).work_check[0]
        assert (product, operations.verdict) == (product, "ok")
        assert operations.measured == pytest.approx(operations.expected, rel=0.01)


def test_the_status_is_that_of_the_severe_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(RESULTS)]) == 0
    assert "Of 23 severe variants and full products, 23 are named" in capsys.readouterr().out


def test_pages_of_different_launches_are_refused(tmp_path: Path) -> None:
    for name in ("planted_severe", "planted_mild"):
        shutil.copy(RESULTS / f"{name}.csv.gz", tmp_path)
    shutil.copy(RESULTS / "planted_mild_details.csv.gz", tmp_path / "planted_severe_details.csv.gz")
    with pytest.raises(SystemExit, match="different launches"):
        list(answers(tmp_path))
    with pytest.raises(SystemExit, match="has no planted_severe"):
        list(answers(tmp_path / "absent"))
