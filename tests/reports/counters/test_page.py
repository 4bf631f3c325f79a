from __future__ import annotations

from pathlib import Path

from gemmetry.api.counters.comparison import compare
from gemmetry.api.counters.diagnosis import diagnose
from gemmetry.counters.diagnosis.gates import diagnose as diagnose_launch
from gemmetry.counters.roofline import roofline_of
from gemmetry.reports.counters.page import (
    comparison_page,
    diagnosis_page,
    roofline_figure,
    stall_figure,
)
from gemmetry.reports.counters.text import DiagnosedLaunch

RAW = Path(__file__).parents[2] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"


def test_a_diagnosis_has_its_verdict_findings_and_work():
    found = diagnose(RAW, shape="4096x4096x4096", dtype="bf16")
    page = diagnosis_page(found.groups(checklists=True), found.problems)
    for text in ("The tensor pipe is at 90.4 % of its peak rate. (tensor_roof, high confidence)",
                 "occupancy_registers", "80 % of the peak rate", "bytes of tiles",
                 "The document&#39;s checklist"):  # fmt: skip
        assert text in page
    own = page.split('id="data"')[0]
    assert 'src="http' not in own
    assert 'href="http' not in own


def test_a_comparison_has_both_on_one_roofline():
    found = compare(RAW, RAW, labels=["before", "after"])
    page = comparison_page(found.comparison, found.problems)
    assert "before: bf16" in page
    assert "after: bf16" in page


def test_the_points_of_a_roofline_are_the_levels():
    (launch,) = diagnose(RAW).launches
    roofline = roofline_of(launch)
    figure = roofline_figure([("", roofline)])
    points = figure["traces"][-1]
    assert points["text"] == [level.name for level in roofline.levels]
    assert points["x"] == [level.intensity for level in roofline.levels]
    assert set(points["y"]) == {roofline.operations_per_s / 1e12}
    assert figure["layout"]["xaxis"]["type"] == figure["layout"]["yaxis"]["type"] == "log"


def test_names_of_kernels_are_no_markup(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics(), "<script>alert(1)</script>")
    page = diagnosis_page([DiagnosedLaunch(diagnosis=diagnose_launch(launch))], ["<b>problem"])
    assert "<script>alert" not in page
    assert "<b>problem" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_without_operations_there_is_no_roofline(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics())
    assert roofline_figure([("", roofline_of(launch))]) is None


def test_the_stalls_of_both_launches_are_bars():
    (kernel,) = compare(RAW, RAW, labels=["before", "after"]).comparison.kernels
    before, after = stall_figure("before", kernel)["traces"]
    assert (before["name"], after["name"]) == ("before", "after")
    assert before["y"][0] == "barrier"
    assert 30 < before["x"][0] < 32
    assert before["x"] == after["x"]
