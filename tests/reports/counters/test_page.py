from __future__ import annotations

from pathlib import Path

from gemmetry.counters.api import compare, diagnose
from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose as diagnose_launch
from gemmetry.counters.page import compared_stalls, comparison_page, diagnosis_page, stall_figure
from gemmetry.counters.text import DiagnosedLaunch
from gemmetry.formats.counters.launches import RuleResult

RAW = Path(__file__).parents[2] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"


def test_a_diagnosis_has_its_verdict_findings_and_work():
    found = diagnose(RAW, shape="4096x4096x4096", dtype="bf16")
    page = diagnosis_page(found.groups(checklists=True), found.problems)
    for text in ("The tensor pipe is at 90.4 % of its peak rate. (tensor_roof, high confidence)",
                 "occupancy_registers", "80 % of the peak rate", "bytes of tiles",
                 "The document&#39;s checklist", "What warps wait for", "137 GFLOP",
                 "What the document expects", "Tensor cores in use"):  # fmt: skip
        assert text in page
    own = page.split('id="data"')[0]
    assert 'src="http' not in own
    assert 'href="http' not in own


def test_a_comparison_has_both_on_one_roofline():
    found = compare(RAW, RAW, labels=["before", "after"])
    page = comparison_page(found)
    assert "before: bf16" in page
    assert "after: bf16" in page
    assert "Kernels that only one report has" not in page


def test_names_of_kernels_are_no_markup(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics(), "<script>alert(1)</script>")
    page = diagnosis_page([DiagnosedLaunch(diagnosis=diagnose_launch(launch))], ["<b>problem"])
    assert "<script>alert" not in page
    assert "<b>problem" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_stalls_of_both_launches_are_bars():
    (kernel,) = compare(RAW, RAW, labels=["before", "after"]).kernels
    before, after = compared_stalls("before", kernel)["traces"]
    assert (before["name"], after["name"]) == ("before", "after")
    assert before["y"][0] == "barrier"
    assert 30 < before["x"][0] < 32
    assert before["x"] == after["x"]


def test_the_stalls_of_a_launch_are_bars_with_what_they_mean():
    (one,) = diagnose(RAW).groups()
    (bars,) = stall_figure(one)["traces"]
    assert bars["y"][:2] == ["barrier", "long_scoreboard"]
    assert 30 < bars["x"][0] < 32
    assert bars["x"] == sorted(bars["x"], reverse=True)
    assert "at a barrier" in bars["customdata"][0]
    assert stall_figure(DiagnosedLaunch(diagnosis=one.diagnosis)) is None


def test_what_rules_of_nvidia_promise_is_on_the_page(counter_launches):
    rule = RuleResult(
        identifier="TheoreticalOccupancy", section="Occupancy", kind="optimization",
        title="Theoretical <Occupancy>", message="", speedup_percent=81.25, speedup_kind="local",
    )  # fmt: skip
    launch = counter_launches.launch(counter_launches.metrics(), rules=(rule,))
    found = diagnose_launch(launch)
    one = DiagnosedLaunch(diagnosis=found, checklists=side_by_side(launch, found))
    page = diagnosis_page([one], [])
    for text in ("NVIDIA&#39;s rules", "Theoretical &lt;Occupancy&gt;",
                 "local speed-up 81.2 %"):  # fmt: skip
        assert text in page


def test_kernels_without_a_counterpart_are_listed():
    others = RAW.parent / "planted_h200" / "gemms.csv.gz"
    found = compare(others, RAW, labels=["many", "one"])
    names = {name for _, name in found.unmatched}
    assert len(names) > 3
    page = comparison_page(found)
    listed = page.split("Kernels that only one report has")[1].split("</section>")[0]
    assert all(name in listed for name in names)
    assert listed.count('<td class="unbroken">many</td>') == len(found.unmatched)
