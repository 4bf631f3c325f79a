"""The document's checklist and NVIDIA's rules, compared with the diagnosis. A recorded
kernel's results are in ``data/outputs/counters_diagnosis.txt``."""

from __future__ import annotations

import pytest

from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose
from gemmetry.formats.counters.launches import RuleResult


def _items(items):
    return {one.item: one for one in items}


@pytest.fixture
def next_to(counter_launches):
    def of(values, **info):
        launch = counter_launches.launch(values, **info)
        return side_by_side(launch, diagnose(launch))

    return of


def test_what_is_missing_is_not_answered(next_to):
    found = next_to({"gpu__time_duration.sum": 1e5})
    items = _items(found.checklist)
    assert items["Stalls on barriers"].answer == "not in the report"
    assert items["SM throughput"].measured is None
    assert found.conclusions == []


def test_stalls_of_the_documents_eight_metrics_are_no_shares(next_to, counter_launches):
    barrier = "smsp__average_warps_issue_stalled_barrier_per_issue_active.pct"
    eight = next_to({barrier: 602.8, "gpu__time_duration.sum": 1e5})
    items = _items(eight.checklist)
    item = items["Stalls on barriers"]
    assert (item.measured, item.answer) == (pytest.approx(602.8), "sync bound")
    assert item.remark.startswith("no share of the time")
    assert eight.conclusions == ["sync bound"]
    assert items["Stalls on memory"].answer == "not in the report"
    agrees = _items(next_to(counter_launches.metrics()).checklist)["Stalls on memory"]
    assert (agrees.answer, agrees.remark) == ("memory bound", "agrees: latency_long_scoreboard")


def test_rules_of_nvidia(next_to, counter_launches):
    rules = (
        RuleResult(identifier="CPIStall", section="WarpStateStats", kind="optimization",
                   title="Barrier Stalls", message="", speedup_percent=9.64, speedup_kind="global"),
        RuleResult(identifier="HighPipeUtilization", section="", kind="ok", title="", message="x"),
        RuleResult(identifier="IssueSlotUtilization", section="", kind="optimization", title="",
                   message="It issues every 8.4 cycles. More text."),
    )  # fmt: skip
    values = counter_launches.metrics({"sm__pipe_tensor_cycles_active": 90.0})
    stall, issue = next_to(values, rules=rules).rules
    assert (stall.title, stall.speedup_percent, stall.speedup_kind) == (
        "Barrier Stalls", 9.64, "global",
    )  # fmt: skip
    assert stall.remark.startswith("suppressed: the tensor pipe is busy")
    assert issue.title == "It issues every 8.4 cycles"
