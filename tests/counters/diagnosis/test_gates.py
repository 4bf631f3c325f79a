"""The verdicts of synthetic launches, gate by gate, and of a recorded one."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.counters.collector import read_counters
from gemmetry.counters.document import launch_document
from gemmetry.counters.facts import MEMORY, REASONS, SECTION_MARKS, SM, SUFFIX, TOTAL, metric_of
from gemmetry.counters.gates import diagnose
from gemmetry.counters.model import Confidence
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import BF16

DATA = Path(__file__).parents[2] / "data" / "counters"
H200 = DATA / "h200_cublas_bf16_4096_raw.csv.gz"
TENSOR = "sm__pipe_tensor_cycles_active"


@pytest.fixture(scope="module")
def h200():
    return read_counters(H200)[0]


@pytest.fixture
def verdict(counter_launches):
    def of(units=(), stalls=(), name="my_kernel", work=None, **others):
        values = counter_launches.metrics(dict(units), dict(stalls), **others)
        return diagnose(counter_launches.launch(values, name), work)

    return of


def test_the_near_perfect_kernel_is_at_the_tensor_roof(h200):
    found = diagnose(h200, GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16))
    assert (found.verdict.id, found.verdict.confidence) == ("tensor_roof", "high")
    assert [one.id for one in found.findings] == ["tensor_roof", "low_clock"]
    assert found.findings[1].ceiling == "at most 1.27×"
    assert found.findings[0].evidence[0].value == pytest.approx(90.36, abs=0.01)
    reasons = {one.id: one.reason for one in found.suppressed}
    assert "the tensor pipe is busy for 90.4 %" in reasons["latency_barrier"]
    assert "asynchronous" in reasons["occupancy_registers"]
    assert "0.5 %" in reasons["shared_bank_conflicts"]


def test_without_the_shape_the_verdict_is_the_same(h200):
    assert diagnose(h200).verdict.id == "tensor_roof"
    assert diagnose(h200).work_check[0].verdict == "skipped"


def test_the_naive_gemm_is_bound_by_load_store_requests(verdict, counter_launches):
    found = verdict(counter_launches.NAIVE_GEMM, {"lg_throttle": 0.726, "long_scoreboard": 0.05})
    assert found.verdict.id == "lsu_requests"
    assert "shared memory" in found.findings[0].remedy
    assert [one.id for one in found.suppressed] == ["latency_lg_throttle"]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (TENSOR, "tensor_roof"),
        ("sm__pipe_tensor_subpipe_hmma_cycles_active", "tensor_roof"),
        ("sm__pipe_fma_cycles_active", "fma_roof"),
        ("sm__inst_executed_pipe_xu", "sfu_roof"),
        ("sm__pipe_alu_cycles_active", "alu_roof"),
        ("sm__issue_active", "instruction_issue"),
        ("l1tex__lsuin_requests", "lsu_requests"),
        ("lts__t_sectors", "l2_roof"),
        ("dram__cycles_active", "dram_roof"),
    ],
)
def test_a_unit_at_its_limit_is_the_verdict_whatever_warps_wait_for(verdict, metric, expected):
    found = verdict({metric: 93.0})
    assert (found.verdict.id, found.verdict.confidence) == (expected, "high")
    assert [one.id for one in found.suppressed] == ["latency_long_scoreboard"]
    assert found.findings[0].collect == "" or "--" in found.findings[0].collect


def test_what_loads_the_l1_cache_decides_between_it_and_shared_memory(verdict):
    busy = {"l1tex__data_pipe_lsu_wavefronts": 90.0}
    shared = "l1tex__data_pipe_lsu_wavefronts_mem_shared___sum"
    at_limit = {f"{shared}___pct_of_peak_sustained_elapsed": 88.0}
    assert verdict(busy, **at_limit).verdict.id == "shared_memory_roof"
    at_limit = {f"{shared}___pct_of_peak_sustained_elapsed": 8.0}
    assert verdict(busy, **at_limit).verdict.id == "l1_roof"
    # Wavefronts of shared memory are one per cycle and multiprocessor at most.
    assert verdict(busy, **{shared: 0.88 * 100_000 * 100}).verdict.id == "shared_memory_roof"
    unknown = verdict(busy).verdict
    assert unknown.confidence == "low"


def test_a_pipe_comes_before_the_issue_of_its_instructions(verdict):
    found = verdict({"sm__pipe_fma_cycles_active": 95.0, "sm__issue_active": 98.0})
    assert found.verdict.id == "fma_roof"
    assert [one.id for one in found.findings] == ["fma_roof", "instruction_issue"]
    found = verdict({"sm__pipe_fma_cycles_active": 75.0, "sm__issue_active": 88.0})
    assert found.verdict.id == "instruction_issue"
    assert "the busiest pipe is the FP32 pipe, at 75.0 %" in found.verdict.claim


def test_the_tensor_pipe_comes_before_a_busier_memory(verdict):
    assert verdict({TENSOR: 84.0, "lts__t_sectors": 93.0}).verdict.id == "tensor_roof"


def test_between_sixty_and_eighty_percent_a_unit_is_the_nearest_limit(verdict):
    found = verdict({"dram__cycles_active": 74.0})
    assert (found.verdict.id, found.verdict.confidence) == ("dram_roof", "medium")
    assert [one.id for one in found.findings] == ["dram_roof", "latency_long_scoreboard"]
    assert found.suppressed == []


FMA, LSU, DRAM = "sm__pipe_fma_cycles_active", "l1tex__lsuin_requests", "dram__cycles_active"


@pytest.mark.parametrize(
    ("units", "stalls", "expected", "confidence"),
    [
        ({FMA: 62.0}, {}, "latency_long_scoreboard", "high"),
        ({FMA: 75.0}, {}, "latency_long_scoreboard", "high"),
        ({FMA: 64.0}, {"barrier": 0.43, "long_scoreboard": 0.1}, "latency_barrier", "medium"),
        ({FMA: 75.0}, {"barrier": 0.43, "long_scoreboard": 0.1}, "fma_roof", "medium"),
        ({FMA: 64.0}, {"math_pipe_throttle": 0.6, "long_scoreboard": 0.1}, "fma_roof", "low"),
        ({LSU: 66.0}, {"lg_throttle": 0.6, "long_scoreboard": 0.1}, "lsu_requests", "low"),
        ({DRAM: 64.0}, {}, "latency_long_scoreboard", "high"),
        ({DRAM: 64.0}, {"lg_throttle": 0.6, "long_scoreboard": 0.1}, "dram_roof", "low"),
        ({DRAM: 64.0}, {"long_scoreboard": 0.25}, "dram_roof", "low"),
        ({TENSOR: 64.0}, {}, "latency_long_scoreboard", "high"),
    ],
)
def test_a_wait_with_better_evidence_comes_before_a_limit_nearby_that_does_not_cause_it(
    verdict, units, stalls, expected, confidence
):
    found = verdict(units, stalls)
    assert (found.verdict.id, found.verdict.confidence) == (expected, confidence)
    assert len({one.id for one in found.findings}) == 2  # The other one is listed.
    assert found.suppressed == []


def test_warps_that_only_start_copies_wait_by_design(verdict):
    copies = {"smsp__inst_executed_op_tma_ld___sum": 1e5}
    assert verdict({TENSOR: 64.0}, **copies).verdict.id == "tensor_roof"
    assert verdict({FMA: 64.0}, **copies).verdict.id == "latency_long_scoreboard"


def test_a_wait_is_bounded_by_the_busiest_unit(verdict):
    found = verdict({LSU: 53.4, "l1tex__data_pipe_lsu_wavefronts": 53.4})
    assert found.findings[0].id == "latency_long_scoreboard"
    assert found.findings[0].ceiling == (
        "at most 1.87×, when the load/store unit (requests) is at its limit"
    )


def test_without_stalls_a_limit_nearby_is_a_guess(counter_launches):
    values = counter_launches.metrics({FMA: 75.0})
    rest = {name: v for name, v in values.items() if not name.startswith("smsp__average")}
    found = diagnose(counter_launches.launch(rest))
    assert (found.verdict.id, found.verdict.confidence) == ("fma_roof", "low")
    assert "Not counted: what warps wait for" in found.findings[0].against


def test_few_blocks(verdict):
    one = {"launch__grid_size": 1.0, "sm__cycles_active___avg": 990.0}
    found = verdict(**one)
    assert (found.verdict.id, found.verdict.confidence) == ("grid_too_small", "high")
    assert "1 block for 100 multiprocessors" in found.verdict.claim
    assert "latency_long_scoreboard" in [one.id for one in found.suppressed]


def test_few_blocks_that_saturate_the_memory_are_at_its_roof(verdict):
    found = verdict({"dram__cycles_active": 90.0}, launch__grid_size=50.0)
    assert found.verdict.id == "dram_roof"
    assert "grid_too_small" in [one.id for one in found.suppressed]


def test_a_tail_wave(verdict):
    found = verdict(launch__waves_per_multiprocessor=1.05, sm__cycles_active___avg=53_000.0)
    assert (found.verdict.id, found.verdict.confidence) == ("tail_wave", "high")
    assert "1.89×" in found.findings[0].ceiling


def test_a_tail_that_costs_nothing_is_dismissed(verdict):
    found = verdict(launch__waves_per_multiprocessor=1.05, sm__cycles_active___avg=97_000.0)
    assert found.verdict.id == "latency_long_scoreboard"
    assert [one.id for one in found.suppressed] == ["tail_wave"]


def test_blocks_that_take_differently_long(verdict):
    found = verdict(sm__cycles_active___avg=60_000.0)
    assert (found.verdict.id, found.verdict.confidence) == ("block_imbalance", "medium")


def test_a_kernel_that_mostly_starts_and_ends(verdict):
    found = verdict(sm__cycles_active___avg=60_000.0, sm__cycles_active___max=65_000.0)
    assert (found.verdict.id, found.verdict.confidence) == ("launch_overhead", "medium")
    unknown = verdict(sm__cycles_active___avg=60_000.0, sm__cycles_active___max=math.nan)
    assert (unknown.verdict.id, unknown.verdict.confidence) == ("block_imbalance", "low")
    assert "or starting takes long" in unknown.verdict.claim
    short = verdict(sm__cycles_active___avg=60_000.0, sm__cycles_active___max=math.nan,
                    gpu__time_duration___sum=3_200.0)  # fmt: skip
    assert (short.verdict.id, short.verdict.confidence) == ("launch_overhead", "low")
    assert short.verdict.claim == (
        "Multiprocessors have no work for 40 % of the time, probably while the kernel starts and "
        "ends"
    )


@pytest.mark.parametrize("reason", ["barrier", "short_scoreboard", "math_pipe_throttle", "membar"])
def test_the_largest_share_of_stalls_is_the_verdict_where_no_unit_is_busy(verdict, reason):
    found = verdict(stalls={reason: 0.7, "long_scoreboard": 0.1, "wait": 0.0})
    assert (found.verdict.id, found.verdict.confidence) == (f"latency_{reason}", "high")
    assert found.findings[0].evidence[0].value == pytest.approx(70)


def test_all_stall_reasons_in_percent_of_issues_give_the_same_shares(counter_launches):
    values = counter_launches.metrics()
    del values[TOTAL]
    for reason in REASONS:
        values[metric_of(reason).replace(".ratio", ".pct")] = 100 * values.pop(metric_of(reason))
    found = diagnose(counter_launches.launch(values))
    assert found.verdict.id == "latency_long_scoreboard"
    assert found.findings[0].evidence[0].value == pytest.approx(60)
    assert "_per_issue_active.pct ÷" in found.findings[0].evidence[0].source


def test_shares_are_ratios_over_their_sum_not_percent_of_issues(verdict):
    # 12 warps wait for each issue: 1200 "percent", but 60 % of the time.
    share = verdict().findings[0].evidence[0]
    assert (share.value, share.unit) == (pytest.approx(60), "%")


def test_no_reason_that_dominates(verdict):
    stalls = {"long_scoreboard": 0.25, "wait": 0.2, "barrier": 0.2, "mio_throttle": 0.2}
    found = verdict(stalls=stalls)
    assert (found.verdict.id, found.verdict.confidence) == ("latency_mixed", "low")


def test_a_short_kernel_is_diagnosed_with_low_confidence(verdict):
    found = verdict(gpu__time_duration___sum=4_000.0)
    assert (found.verdict.id, found.verdict.confidence) == ("latency_long_scoreboard", "low")
    assert "4 µs" in found.findings[0].against


def test_a_communication_kernel_cannot_be_diagnosed(verdict):
    found = verdict(
        name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    )
    assert found.verdict.id == "cannot_tell"
    assert "alone" in found.verdict.claim
    assert "latency_long_scoreboard" in [one.id for one in found.suppressed]


def test_counters_that_contradict_each_other_give_no_verdict(verdict):
    sm = SM.replace(".", "___")
    found = verdict({TENSOR: 90.0}, **{sm: 40.0})
    assert (found.verdict.id, "contradict" in found.verdict.claim) == ("cannot_tell", True)
    assert verdict({"dram__cycles_active": 130.0}).verdict.id == "cannot_tell"


def test_traffic_of_device_memory_that_passes_the_cache_does_not_make_it_the_limit(verdict):
    """`lts__throughput` counts what the cache takes from device memory; the rate of the whole
    memory system does not."""
    memory = MEMORY.replace(".", "___")
    units = {"dram__cycles_active": 89.9, "lts__throughput": 91.4, "lts__t_sectors": 55.0}
    assert verdict(units, **{memory: 89.9}).verdict.id == "dram_roof"
    assert verdict(units | {"lts__t_tag_requests": 97.0}).verdict.id == "l2_roof"
    # The details page has no other metric of the cache.
    gone = {("lts__t_sectors" + SUFFIX).replace(".", "___"): math.nan}
    assert verdict(units, **{memory: 89.9}, **gone).verdict.id == "dram_roof"
    alone = {"dram__cycles_active": 20.0, "lts__throughput": 91.4}
    assert verdict(alone, **{memory: 91.4}, **gone).verdict.id == "l2_roof"


def test_a_part_of_multiprocessors_may_be_busier_than_the_memory_system(verdict):
    assert verdict({"sm__inst_executed_pipe_lsu": 92.0}).verdict.id == "lsu_requests"


@pytest.mark.parametrize("requests", [74.6, 92.6])
def test_requests_come_before_the_stage_that_each_passes_once(verdict, requests):
    units = {"l1tex__lsuin_requests": requests, "l1tex__data_pipe_lsu_wavefronts": requests + 0.4}
    assert verdict(units).verdict.id == "lsu_requests"
    units["l1tex__data_pipe_lsu_wavefronts"] += 4
    assert verdict(units).verdict.id == "l1_roof"


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.sampled_from([1, 20, 200, 1500]))
def test_no_value_of_a_counter_is_an_error(h200, seed, count):
    """Zeros, missing and absurd values in any of the report's 2,000 metrics."""
    chosen = random.Random(seed)
    values = [0.0, math.nan, math.inf, -1.0, 1e-300, 1e300]
    changed = {
        name: np.array([chosen.choice(values)])
        for name in chosen.sample(sorted(h200.metrics()), count)
    }
    table = replace(h200.table, values={**h200.table.values, **changed})
    document = launch_document(diagnose(table[0], GemmWork(m=64, n=64, k=64, lhs=BF16, rhs=BF16)))
    assert document["verdict"]["id"]


@pytest.mark.parametrize("waves", [0.0, 0.5])
def test_a_rounded_zero_is_no_error(verdict, waves):
    """The waves of a grid of one block are 0.00 in a report."""
    warps = "sm__warps_active___avg___pct_of_peak_sustained_active"
    found = verdict(**{"launch__waves_per_multiprocessor": waves, warps: 3.0})
    (few,) = [one for one in found.findings if one.id == "grid_too_small"]
    assert few.ceiling == ("at most 2×" if waves else "")


def test_only_zeros_give_no_verdict(verdict, counter_launches):
    assert verdict(dict.fromkeys(counter_launches.UNITS, 0.0)).verdict.id == "cannot_tell"


def test_a_report_in_which_every_number_is_zero_gives_no_verdict(h200):
    zeros = {name: np.zeros_like(column) for name, column in h200.table.values.items()}
    found = diagnose(replace(h200.table, values=zeros)[0])
    assert found.verdict.claim == "All units show zero percent, although a kernel ran"
    assert [one.id for one in found.findings] == ["cannot_tell"]


def test_units_that_do_nothing_next_to_one_that_works_are_no_missing_counters(counter_launches):
    """A summary has few units and two digits, and a kernel of one block rounds to zero in all."""

    def claims(values, **info):
        return [one.claim for one in diagnose(counter_launches.launch(values, **info)).findings]

    rounded = {"gpu__dram_throughput" + SUFFIX: 0.0, "lts__throughput" + SUFFIX: 0.0}
    for more in ({SM: 98.29, MEMORY: 7.0}, {"sm__cycles_active.avg": 31.5}, {MEMORY: 0.02}):
        assert not [one for one in claims({**rounded, SM: 0.0, **more}) if "zero" in one], more
    assert [one for one in claims({**rounded, SM: 0.0, MEMORY: 0.0}) if "zero" in one]
    amd = {"SQ_VALU_MFMA_BUSY_CYCLES": 0.0, "SQ_LDS_IDX_ACTIVE": 0.0, "GRBM_GUI_ACTIVE": 8e6,
           "num_xcc": 8.0, "simd_count": 1216.0, "cu_count": 304.0}  # fmt: skip
    info = {"tool": "rocprofv3", "capability": "gfx942"}
    assert not [one for one in claims({**amd, "SQ_WAVES": 4096.0}, **info) if "zero" in one]
    assert [one for one in claims(amd, **info) if "zero" in one]


def test_a_summary_is_never_sure_of_what_the_whole_report_contradicts():
    for kind in ("severe", "mild"):
        names = (f"planted_{kind}_details.csv.gz", f"planted_{kind}.csv.gz")
        pages = [read_counters(DATA / "planted_h200" / name) for name in names]
        whole = {one.name: diagnose(one) for one in pages[1]}
        assert pages[0].sections
        for launch in pages[0]:
            found = diagnose(launch)
            assert all("zero" not in one.claim for one in found.findings)
            if found.verdict.id != "cannot_tell":
                _check_weaker(found.verdict, whole[launch.name].verdict, launch.name)
            # What was collected is exported, not collected again.
            asked = {f"--section {name}" for name in pages[0].sections}
            for one in found.findings:
                assert not asked & {f"--{part.strip()}" for part in one.collect.split("--")}


@settings(max_examples=60, deadline=None)
@given(scenario=st.sampled_from(("dram", "naive", "latency", "near")), data=st.data())
def test_no_section_that_was_collected_is_named_again(counter_launches, scenario, data):
    units, stalls, others = SCENARIOS[scenario]
    marks = [one for names in SECTION_MARKS.values() for one in names]
    values = dict.fromkeys(marks, 20.0) | counter_launches.metrics(units, stalls, **others)
    rest = sorted(set(values) - set(marks))
    gone = data.draw(st.sets(st.sampled_from(rest), max_size=len(rest)))
    kept = {name: value for name, value in values.items() if name not in gone}
    found = diagnose(counter_launches.launch(kept, "my_gemm"))
    named = {word for one in found.findings for word in one.collect.split()}
    assert not named & set(SECTION_MARKS)


def test_what_few_warps_cost_comes_before_blocks_of_different_length(verdict):
    units, stalls, others = SCENARIOS["few_warps"]
    found = verdict(units, stalls, **others)
    assert (found.verdict.id, found.verdict.confidence) == ("latency_long_scoreboard", "high")
    assert [one.id for one in found.findings] == [
        "occupancy_shared_memory", "latency_long_scoreboard", "block_imbalance",
    ]  # fmt: skip
    found = verdict(units, stalls, **{**others, "sm__cycles_active___avg": 3e4})
    assert found.verdict.id == "block_imbalance"


@pytest.mark.parametrize("reason", ["no_instruction", "imc_miss", "drain", "dispatch_stall"])
def test_more_warps_hide_no_wait_for_what_they_fetch_or_fill(verdict, reason):
    few = {"launch__waves_per_multiprocessor": 0.06,
           "sm__warps_active___avg___pct_of_peak_sustained_active": 6.0}  # fmt: skip
    found = verdict({}, {reason: 0.75, "long_scoreboard": 0.0, "wait": 0.05}, **few)
    assert found.verdict.id == found.findings[0].id == f"latency_{reason}"
    assert "cause" not in found.verdict.claim


def test_without_units_stalls_alone_give_no_verdict(counter_launches):
    values = counter_launches.metrics()
    only = {name: v for name, v in values.items() if name.startswith(("smsp__av", "gpu__time"))}
    found = diagnose(counter_launches.launch(only))
    assert found.verdict.id == "cannot_tell"
    assert "--section ComputeWorkloadAnalysis" in found.findings[0].collect
    assert [one.confidence for one in found.findings[1:]] == ["low"]


def test_without_stalls_the_section_that_has_them_is_named(counter_launches):
    values = counter_launches.metrics()
    rest = {name: v for name, v in values.items() if not name.startswith("smsp__average")}
    found = diagnose(counter_launches.launch(rest))
    assert found.verdict.id == "cannot_tell"
    assert found.findings[0].collect == "--section WarpStateStats"


def test_an_unknown_pipe_that_may_be_at_its_limit_leaves_the_verdict_open(verdict):
    gone = {(TENSOR + SUFFIX).replace(".", "___"): math.nan}
    assert verdict(**gone).verdict.id == "latency_long_scoreboard"  # SM throughput is low
    found = verdict({"sm__pipe_fma_cycles_active": 90.0}, **gone)
    assert found.verdict.id == "cannot_tell"
    assert "tensor pipe" in found.verdict.claim


def test_a_limit_beyond_doubt_stays_where_its_rivals_were_not_counted(verdict):
    """Even if the L2 cache is at 100 %, no more than a twelfth is gained until the memory is."""
    gone = {name.replace(".", "___"): math.nan
            for name in ("lts__t_sectors" + SUFFIX, SM, MEMORY)}  # fmt: skip
    found = verdict({"dram__cycles_active": 92.0}, **gone)
    assert (found.verdict.id, found.verdict.confidence) == ("dram_roof", "medium")
    first = found.findings[0]
    assert "possibly busier: the L2 cache" in first.against
    assert "SpeedOfLight" in first.against
    assert first.collect == "--section SpeedOfLight"
    assert [one.id for one in found.suppressed] == ["latency_long_scoreboard"]
    # At 82 % a cache at 100 % is the limit, and tensor cores come first at any rate.
    assert verdict({"dram__cycles_active": 82.0}, **gone).verdict.id == "cannot_tell"
    gone[(TENSOR + SUFFIX).replace(".", "___")] = math.nan
    assert verdict({"dram__cycles_active": 92.0}, **gone).verdict.id == "cannot_tell"


def test_a_busy_unit_that_is_not_listed(counter_launches):
    values = counter_launches.metrics()
    values["sm__new_pipe_cycles_active" + SUFFIX] = values[SM] = 91.0
    launch = counter_launches.launch(values)
    assert diagnose(launch).verdict.id == "cannot_tell"
    launch.table.texts["breakdown:" + SM] = ["sm__new_pipe_cycles_active" + SUFFIX]
    assert diagnose(launch).verdict.id == "other_roof"


def test_without_the_busiest_of_all_units_the_verdict_about_latency_is_a_guess(verdict):
    found = verdict(**{SM.replace(".", "___"): math.nan})
    assert (found.verdict.id, found.verdict.confidence) == ("latency_long_scoreboard", "low")
    assert "SpeedOfLight" in found.findings[0].against


def test_an_unknown_chip_is_diagnosed_by_the_metrics_it_has(counter_launches):
    values = counter_launches.metrics({"dram__cycles_active": 90.0})
    found = diagnose(counter_launches.launch(values, capability="77.7", device=""))
    assert found.verdict.id == "dram_roof"


def test_an_empty_report_gives_no_verdict(counter_launches):
    found = diagnose(counter_launches.launch({}))
    assert found.verdict.id == "cannot_tell"
    assert found.findings[0].collect


SCENARIOS = {
    "tensor": ({TENSOR: 92.0}, {}, {}),
    "dram": ({"dram__cycles_active": 92.0, "lts__t_sectors": 70.0}, {}, {}),
    "near": ({"lts__t_sectors": 75.0}, {}, {}),
    "near_but_waiting": ({"sm__pipe_fma_cycles_active": 75.0}, {}, {}),
    "near_and_waiting": ({"sm__pipe_fma_cycles_active": 75.0},
                         {"long_scoreboard": 0.4, "barrier": 0.2}, {}),
    "naive": ({"l1tex__lsuin_requests": 90.0}, {"lg_throttle": 0.7, "long_scoreboard": 0}, {}),
    "issue": ({"sm__issue_active": 95.0}, {}, {}),
    "latency": ({}, {}, {}),
    "gmma": ({}, {"gmma": 0.7, "long_scoreboard": 0.1}, {}),
    "tail": ({}, {}, {"launch__waves_per_multiprocessor": 1.1, "sm__cycles_active___avg": 55e3}),
    "overhead": ({}, {}, {"sm__cycles_active___avg": 6e4, "sm__cycles_active___max": 65e3}),
    "one": ({}, {}, {"launch__grid_size": 1.0, "sm__cycles_active___avg": 1e3}),
    "few_warps": ({}, {"long_scoreboard": 0.85, "wait": 0.05}, {
        "sm__cycles_active___avg": 7e4, "sm__cycles_active___max": 9.9e4,
        "launch__waves_per_multiprocessor": 1.0, "launch__grid_size": 100.0,
        "sm__maximum_warps_per_active_cycle_pct": 3.125,
        "sm__warps_active___avg___pct_of_peak_sustained_active": 3.1,
        "launch__occupancy_limit_shared_mem": 1.0, "launch__occupancy_limit_registers": 32.0,
        "launch__occupancy_limit_blocks": 32.0, "launch__occupancy_limit_warps": 32.0,
    }),
    "spills": ({}, {}, {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld___sum": 9e6,
                        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld___sum": 1e6}),
}  # fmt: skip
_CONFIDENT = (Confidence.HIGH, Confidence.MEDIUM)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_removing_a_metric_never_gives_another_confident_verdict(scenario, counter_launches):
    units, stalls, others = SCENARIOS[scenario]
    values = counter_launches.metrics(units, stalls, **others)
    whole = diagnose(counter_launches.launch(values)).verdict
    assert whole.confidence in _CONFIDENT
    for name in values:
        rest = {key: value for key, value in values.items() if key != name}
        found = diagnose(counter_launches.launch(rest)).verdict
        _check_weaker(found, whole, name)


@settings(max_examples=100, deadline=None)
@given(scenario=st.sampled_from(sorted(SCENARIOS)), data=st.data())
def test_removing_metrics_never_gives_another_confident_verdict(counter_launches, scenario, data):
    units, stalls, others = SCENARIOS[scenario]
    values = counter_launches.metrics(units, stalls, **others)
    whole = diagnose(counter_launches.launch(values)).verdict
    gone = data.draw(st.sets(st.sampled_from(sorted(values)), max_size=len(values)))
    rest = {key: value for key, value in values.items() if key not in gone}
    _check_weaker(diagnose(counter_launches.launch(rest)).verdict, whole, gone)


def test_removing_a_metric_of_the_recorded_launch(h200, counter_launches):
    values = h200.metrics()
    ours = [
        name for name in values
        if name.endswith(SUFFIX) or name.startswith(("launch__", "smsp__average", "sm__", "gpu__"))
    ]  # fmt: skip
    kept = {name: value for name, value in values.items() if name in ours}
    whole = diagnose(counter_launches.launch(kept, h200.name)).verdict
    for name in [SM, MEMORY, TOTAL, *map(metric_of, REASONS), TENSOR + SUFFIX]:
        rest = {key: value for key, value in kept.items() if key != name}
        _check_weaker(diagnose(counter_launches.launch(rest, h200.name)).verdict, whole, name)


def _check_weaker(found, whole, gone):
    if found.id in (whole.id, "cannot_tell"):
        return
    assert found.confidence not in _CONFIDENT, (found, gone)


def test_the_document_has_the_documented_keys(h200):
    document = launch_document(diagnose(h200))
    assert set(document) >= {
        "kernel", "device", "duration_ns", "work_check", "verdict", "findings", "suppressed",
    }  # fmt: skip
    assert set(document["work_check"][0]) == {
        "quantity", "measured", "expected", "verdict", "reason",
    }  # fmt: skip
    assert set(document["verdict"]) == {"id", "claim", "confidence"}
    assert set(document["findings"][0]) == {
        "id", "claim", "evidence", "threshold", "threshold_source", "confidence", "against",
        "remedy", "ceiling", "collect",
    }  # fmt: skip
    assert set(document["findings"][0]["evidence"][0]) == {"metric", "value", "unit", "source"}
    assert set(document["suppressed"][0]) == {"id", "claim", "reason"}
