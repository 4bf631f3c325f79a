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


@pytest.fixture(scope="module")
def h200():
    launch = read_counters(RAW)[0]
    return side_by_side(launch, diagnose(launch, WORK), WORK)


def _items(items):
    return {one.item: one for one in items}


def test_the_checklist_condemns_a_near_perfect_kernel_and_says_why_it_should_not(h200):
    items = _items(h200.checklist)
    barrier, occupancy = items["Stalls on barriers"], items["Theoretical occupancy"]
    assert (barrier.target, barrier.answer) == ("> 25 %", "sync bound")
    assert barrier.measured == pytest.approx(30.7, abs=0.1)
    assert "tensor pipe is busy" in barrier.remark
    assert (occupancy.target, occupancy.answer) == ("< 50 %", "occupancy bound")
    assert occupancy.remark.startswith("suppressed")
    assert h200.conclusions == ["sync bound", "occupancy bound", "occupancy bound"]


def test_its_targets(h200):
    items = _items(h200.checklist)
    shown = {name: (items[name].target, round(items[name].measured, 1), items[name].answer)
             for name in ("SM throughput", "Memory throughput", "Compute throughput")}  # fmt: skip
    assert shown == {
        "SM throughput": ("> 80 %", 90.4, "target met"),
        "Memory throughput": ("> 70 %", 69.9, "target missed"),
        "Compute throughput": ("> 60 %", 90.4, "target met"),
    }


def test_copies_of_tiles(h200):
    items = _items(h200.checklist)
    assert items["TMA efficiency"].measured == pytest.approx(100, abs=0.01)
    assert items["TMA multicast"].measured == pytest.approx(1.94, abs=0.01)
    assert items["TMA multicast"].answer == "multicast"


def test_what_the_document_expects(h200):
    answers = {one.item: one.answer for one in h200.insights}
    assert answers == {
        "Memory stalls": "not as expected", "Barrier stalls": "not as expected",
        "Tensor cores in use": "as expected",
    }  # fmt: skip


def test_what_is_missing_is_not_answered(counter_launches):
    launch = counter_launches.launch({"gpu__time_duration.sum": 1e5})
    found = side_by_side(launch, diagnose(launch))
    items = _items(found.checklist)
    assert items["Stalls on barriers"].answer == "not in the report"
    assert items["SM throughput"].measured is None
    assert found.conclusions == []


def test_stalls_of_the_documents_eight_metrics_are_no_shares(counter_launches):
    barrier = "smsp__average_warps_issue_stalled_barrier_per_issue_active.pct"
    launch = counter_launches.launch({barrier: 602.8, "gpu__time_duration.sum": 1e5})
    found = side_by_side(launch, diagnose(launch))
    item = _items(found.checklist)["Stalls on barriers"]
    assert (item.measured, item.answer) == (pytest.approx(602.8), "sync bound")
    assert item.remark.startswith("no share of the time")
    assert _items(found.checklist)["Stalls on memory"].answer == "not in the report"


def test_a_check_that_agrees_says_so(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics())
    found = side_by_side(launch, diagnose(launch))
    item = _items(found.checklist)["Stalls on memory"]
    assert (item.answer, item.remark) == ("memory bound", "agrees: latency_long_scoreboard")


def test_rules_of_nvidia(counter_launches):
    rules = (
        RuleResult(identifier="CPIStall", section="WarpStateStats", kind="optimization",
                   title="Barrier Stalls", message="", speedup_percent=9.64, speedup_kind="global"),
        RuleResult(identifier="HighPipeUtilization", section="", kind="ok", title="", message="x"),
        RuleResult(identifier="IssueSlotUtilization", section="", kind="optimization", title="",
                   message="It issues every 8.4 cycles. More text."),
    )  # fmt: skip
    values = counter_launches.metrics({"sm__pipe_tensor_cycles_active": 90.0})
    launch = counter_launches.launch(values, rules=rules)
    found = side_by_side(launch, diagnose(launch))
    stall, issue = found.rules
    assert (stall.title, stall.speedup_percent, stall.speedup_kind) == (
        "Barrier Stalls", 9.64, "global",
    )  # fmt: skip
    assert stall.remark.startswith("suppressed: the tensor pipe is busy")
    assert issue.title == "It issues every 8.4 cycles"
