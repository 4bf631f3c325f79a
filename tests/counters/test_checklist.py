"""The document's checklist and NVIDIA's rules, next to the diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import BF16
from gemmetry.formats.counters.launches import RuleResult

RAW = Path(__file__).parents[1] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
WORK = GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16)


def _items(items):
    return {one.item: one for one in items}


def test_the_checklist_condemns_a_near_perfect_kernel_and_says_why_it_should_not():
    launch = read_counters(RAW)[0]
    found = side_by_side(launch, diagnose(launch, WORK), WORK)
    items = _items(found.checklist)
    expected = {
        "Stalls on barriers": ("> 25 %", 30.7, "sync bound"),
        "SM throughput": ("> 80 %", 90.4, "target met"),
        "Memory throughput": ("> 70 %", 69.9, "target missed"),
        "Compute throughput": ("> 60 %", 90.4, "target met"),
    }
    for name, (target, measured, answer) in expected.items():
        item = items[name]
        assert (item.target, round(item.measured, 1), item.answer) == (target, measured, answer)
    assert "tensor pipe is busy" in items["Stalls on barriers"].remark
    occupancy, multicast = items["Theoretical occupancy"], items["TMA multicast"]
    assert (occupancy.target, occupancy.answer) == ("< 50 %", "occupancy bound")
    assert occupancy.remark.startswith("suppressed")
    assert found.conclusions == ["sync bound", "occupancy bound", "occupancy bound"]
    assert items["TMA efficiency"].measured == pytest.approx(100, abs=0.01)
    assert multicast.measured == pytest.approx(1.94, abs=0.01)
    assert multicast.answer == "multicast"
    assert {one.item: one.answer for one in found.insights} == {
        "Memory stalls": "not as expected", "Barrier stalls": "not as expected",
        "Tensor cores in use": "as expected",
    }  # fmt: skip


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
    items = _items(next_to({barrier: 602.8, "gpu__time_duration.sum": 1e5}).checklist)
    item = items["Stalls on barriers"]
    assert (item.measured, item.answer) == (pytest.approx(602.8), "sync bound")
    assert item.remark.startswith("no share of the time")
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
