"""The diagnosis of kernels with known bottlenecks, whose counters were collected on an H200."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from pathlib import Path

import confusion
import pytest
from confusion import Answered, answers, main, summary
from publish import provenance

from gemmetry.counters.collector import read_counters
from gemmetry.counters.gates import diagnose
from gemmetry.counters.work import gemm_work
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import BF16

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
    page = (ROOT / "docs/measured-tables.md").read_text()
    assert f"{provenance(RESULTS)}\n\n{summary(rows)}\n" in page


def test_of_mild_variants_a_wait_comes_before_a_pipe_that_is_not_waited_for(rows) -> None:
    found = {one.kernel: one for one in rows}
    for kernel, cause in (
        ("pointer_chase_mild", "latency_long_scoreboard"),
        ("barrier_imbalance_mild", "latency_barrier"),
    ):
        assert found[kernel].verdict == found[kernel].findings[0] == cause
        assert "fma_roof" in found[kernel].findings
    # Waits for the L2 cache at 74 % of its rate support it.
    tile = "triton:matmul_4096x4096x4096_bf16t_bf16n_bf16t:tile_64x64x32_warps4_stages2_group1"
    assert found[tile].verdict == "l2_roof"


def test_what_every_product_did_agrees_with_the_model() -> None:
    """Operations, bytes of results and, to the last byte, bytes of tiles. The tile is that of the
    kernel's name, or else of the dispatch's."""
    by_copies = 0
    names = json.loads((RESULTS / "gemms.json").read_text())
    for name, launch in zip(names, read_counters(RESULTS / "gemms.csv.gz"), strict=True):
        work = gemm_work(parse_operation(name.split(":")[1]))
        operations, tiles, results = diagnose(launch, work).work_check[:3]
        assert launch.value("l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum") is not None
        assert (name, operations.verdict, results.verdict) == (name, "ok", "ok")
        assert operations.measured == pytest.approx(operations.expected, rel=0.001)
        # TF32's kernel stores one more sector.
        assert results.measured == pytest.approx(results.expected, rel=1e-6)
        copied = launch.value("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum")
        assert copied is not None
        if name.startswith("torch:"):
            assert (name, tiles.verdict, tiles.measured) == (name, "ok", tiles.expected)
            by_copies += tiles.measured == copied
        elif (tile := re.search(r"_tile_(\d+)x(\d+)x", name)) is not None:
            shape = parse_operation(name.split(":")[1]).matmul_shape
            m, n = int(tile[1]), int(tile[2])
            across = math.ceil(shape.m / m) * math.ceil(shape.n / n)
            assert tiles.measured == across * (m + n) * shape.k * BF16.itemsize
    assert by_copies == 6  # Those on tensor cores.


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another place for what ``--update`` replaces."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\nCollected on a day.\n\nold table\n\nOf 1 severe variants\n"
        "Of 18 mild variants, 1 are named.\n\nRest.\n"
    )
    monkeypatch.setattr(confusion, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(confusion, "PAGE", page)
    return tmp_path / "kept"


def test_a_campaign_replaces_the_data_and_the_table(tmp_path: Path, kept: Path, rows) -> None:
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results)
    packed = results / "gemms.csv.gz"
    (results / "gemms.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert main([str(results), "--update"]) == 0
    assert {one.name for one in kept.iterdir()} == {one.name for one in RESULTS.iterdir()}
    for name in ("gemms.csv.gz", "planted_mild_details.csv.gz"):
        wanted, found = (gzip.decompress((one / name).read_bytes()) for one in (RESULTS, kept))
        assert wanted == found
    expected = f"# Page\n\n{provenance(RESULTS)}\n\n{summary(rows)}\n\nRest.\n"
    assert (tmp_path / "page.md").read_text() == expected
    files = {one: one.read_bytes() for one in kept.iterdir()}
    assert main([str(kept), "--update"]) == 0  # After a change of a rule, the page alone.
    assert {one: one.read_bytes() for one in kept.iterdir()} == files
