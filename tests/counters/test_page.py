from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmetry.counters.api import compare, diagnose
from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose as diagnose_launch
from gemmetry.counters.page import (
    comparison_page,
    diagnosis_page,
    diagnosis_panels,
    render_roofline,
    stall_figure,
)
from gemmetry.counters.text import DiagnosedLaunch
from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.launches import RuleResult

RAW = Path(__file__).parents[1] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
PLANTED = RAW.parent / "planted_h200" / "gemms.csv.gz"


@pytest.mark.parametrize("case", ["diagnosis", "comparison", "unmatched"])
def test_a_page(case, page_text, page_data, dumped, golden, loads_nothing):
    """Loads nothing; kernels without a counterpart are listed."""
    if case == "diagnosis":
        found = diagnose(RAW, shape="4096x4096x4096", dtype="bf16")
        page = diagnosis_page(found.groups(checklists=True), found.problems)
    else:
        first = RAW if case == "comparison" else PLANTED
        page = comparison_page(compare(first, RAW, labels=["before", "after"]))
    loads_nothing(page.split('id="data"')[0])
    text = page_text(page).replace(str(RAW.parent), "{counters}")
    golden(f"counters_{case}", f"{text}\f\n{dumped(*page_data(page)['figures'])}")


def test_names_are_no_markup_and_what_rules_of_nvidia_promise(counter_launches):
    rule = RuleResult(
        identifier="TheoreticalOccupancy", section="Occupancy", kind="optimization",
        title="Theoretical <Occupancy>", message="", speedup_percent=81.25, speedup_kind="local",
    )  # fmt: skip
    launch = counter_launches.launch(
        counter_launches.metrics(), "<script>alert(1)</script>", rules=(rule,)
    )
    found = diagnose_launch(launch)
    one = DiagnosedLaunch(diagnosis=found, checklists=side_by_side(launch, found))
    page = diagnosis_page([one], ["<b>problem"])
    assert "<script>alert" not in page and "<b>problem" not in page
    for text in ("&lt;script&gt;alert(1)", "NVIDIA&#39;s rules", "Theoretical &lt;Occupancy&gt;",
                 "local speed-up 81.2 %"):  # fmt: skip
        assert text in page


def test_a_picture_has_kernels_verdicts_and_plain_numbers_and_is_the_same_each_time():
    (launch,) = diagnose(RAW).groups()
    assert stall_figure(DiagnosedLaunch(diagnosis=launch.diagnosis)) is None
    panels = diagnosis_panels([launch, replace(launch, roofline=None)])
    first = render_roofline(panels, "svg")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", first.decode())
    for text in ("The tensor pipe is at 90.4 %", "nvjet_sm90", "bf16 datasheet, 989 TFLOP/s",
                 "operations were not counted: 1", "1000"):  # fmt: skip
        assert any(text in one for one in texts), text
    assert not any("$" in one for one in texts)
    assert render_roofline(panels, "svg") == first
    with pytest.raises(RequestError, match="operations of no kernel"):
        render_roofline([("kernel", "text", [])], "png")
