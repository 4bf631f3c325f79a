"""Costs are the first finding where they cause the limit, and dismissed where they are small."""

from __future__ import annotations

import pytest

from gemmetry.counters.gates import diagnose
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import F32

_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_L1 = "l1tex__data_pipe_lsu_wavefronts"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}_op_{}.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_{}_op_{}.sum"
_PER_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"


@pytest.fixture
def diagnosed(counter_launches):
    def of(units=(), stalls=(), more=(), work=None, **info):
        values = {**counter_launches.metrics(dict(units), dict(stalls)), **dict(more)}
        return diagnose(counter_launches.launch(values, **info), work)

    return of


def _ids(found):
    return [one.id for one in found.findings]


def _conflicts(share):
    return {
        f"{_SHARED}.sum": 1e6, f"{_CONFLICTS}.sum": share * 1e6,
        f"{_SHARED}.sum.pct_of_peak_sustained_elapsed": 90.0,
    }  # fmt: skip


def test_bank_conflicts_cause_the_limit_of_shared_memory(diagnosed):
    busy = {"l1tex__data_pipe_lsu_wavefronts": 92.0}
    found = diagnosed(busy, more=_conflicts(0.97))
    assert found.verdict.id == "shared_memory_roof"
    assert _ids(found)[:2] == ["shared_bank_conflicts", "shared_memory_roof"]
    assert "bank conflicts" in found.verdict.claim
    assert found.findings[0].ceiling.startswith("at most 33.3×")
    some = diagnosed(busy, more=_conflicts(0.2))
    assert _ids(some)[:2] == ["shared_memory_roof", "shared_bank_conflicts"]
    assert "cause" not in some.verdict.claim


def test_bank_conflicts_do_not_matter_where_device_memory_is_at_its_limit(diagnosed):
    found = diagnosed({"dram__cycles_active": 92.0, "l1tex__data_pipe_lsu_wavefronts": 40.0},
                      more=_conflicts(0.9))  # fmt: skip
    assert "shared_bank_conflicts" not in _ids(found)
    assert "shared_bank_conflicts" in [one.id for one in found.suppressed]


def _strided(sectors):
    return {
        _SECTORS.format("global", "ld"): 1e6 * sectors, _REQUESTS.format("global", "ld"): 1e6,
        _PER_SECTOR: 4.0,
    }  # fmt: skip


@pytest.mark.parametrize("unit", ["dram__cycles_active", "lts__t_sectors"])
def test_uncoalesced_loads_cause_the_limit_of_what_moves_them(diagnosed, unit):
    found = diagnosed({unit: 90.0}, more=_strided(32))
    assert _ids(found)[0] == "uncoalesced_access"
    assert found.findings[0].evidence[0].value == pytest.approx(87.5)


def test_uncoalesced_loads_cause_waiting_for_global_memory(diagnosed):
    found = diagnosed({"lts__t_sectors": 45.0}, more=_strided(32))
    assert found.verdict.id == "latency_long_scoreboard"
    assert _ids(found)[0] == "uncoalesced_access"
    assert found.findings[0].confidence == "medium"


def test_loads_from_a_page_each_wait_for_more_than_their_bytes(diagnosed):
    """The memory has little to do: the waits are latencies, among them those of translation."""
    found = diagnosed({"lts__t_sectors": 9.0, "dram__cycles_active": 6.0}, more=_strided(32))
    assert (found.verdict.id, found.verdict.confidence) == ("latency_long_scoreboard", "high")
    assert "not used" not in found.verdict.claim
    (wasted,) = [one for one in found.findings if one.id == "uncoalesced_access"]
    assert wasted.confidence != "high"
    assert wasted.against


def test_a_value_that_all_threads_share_is_not_uncoalesced(diagnosed):
    assert "uncoalesced_access" not in _ids(diagnosed(more=_strided(1)))


def test_more_sectors_than_the_widest_access_needs_are_uncoalesced_without_further_metrics(
    diagnosed,
):
    loads = _strided(32)
    del loads[_PER_SECTOR]
    (wasted,) = [one for one in diagnosed(more=loads).findings if one.id == "uncoalesced_access"]
    assert wasted.evidence[0].value == pytest.approx(50)
    loads[_SECTORS.format("global", "ld")] = 16e6
    assert _ids(diagnosed(more=loads)) == ["latency_long_scoreboard"]


def test_stores_count_by_their_part_of_the_traffic(diagnosed):
    loads = {
        _SECTORS.format("global", "ld"): 100e6, _REQUESTS.format("global", "ld"): 25e6,
        _SECTORS.format("global", "st"): 3.2e6, _REQUESTS.format("global", "st"): 0.1e6,
    }  # fmt: skip
    assert "uncoalesced_access" not in _ids(diagnosed(more=loads))


def test_spills_cause_waiting_for_memory(diagnosed):
    local = {
        _SECTORS.format("local", "ld"): 6e6, _SECTORS.format("local", "st"): 3e6,
        _SECTORS.format("global", "ld"): 1e6, _SECTORS.format("global", "st"): 0.0,
    }  # fmt: skip
    found = diagnosed(more=local)
    assert _ids(found)[:2] == ["local_memory", "latency_long_scoreboard"]
    few = {**local, _SECTORS.format("global", "ld"): 400e6}
    found = diagnosed(more=few)
    assert _ids(found) == ["latency_long_scoreboard"]
    assert "local_memory" in [one.id for one in found.suppressed]


@pytest.mark.parametrize(
    ("spilled", "ceiling"), [(9e6, "at most 10×"), (98e6, "at most 99×"), (999e6, "more than 100×")]
)
def test_the_least_that_spills_cost_is_no_upper_bound(diagnosed, spilled, ceiling):
    local = {
        _SECTORS.format("local", "ld"): spilled, _SECTORS.format("local", "st"): 0.0,
        _SECTORS.format("global", "ld"): 1e6, _SECTORS.format("global", "st"): 0.0,
    }  # fmt: skip
    found = diagnosed(more=local)
    (spills,) = (one for one in found.findings if one.id == "local_memory")
    assert spills.ceiling == f"{ceiling} less traffic of loads and stores"


def test_divergence_causes_the_limit_of_the_pipes(diagnosed):
    lanes = {"smsp__thread_inst_executed_per_inst_executed.ratio": 2.0}
    found = diagnosed({"sm__issue_active": 90.0}, more=lanes)
    assert (found.verdict.id, _ids(found)[0]) == ("instruction_issue", "divergence")
    assert "2.0 of 32 threads" in found.findings[0].claim


def test_a_chain_of_loads_by_one_thread_is_not_caused_by_divergence(diagnosed):
    lanes = {"smsp__thread_inst_executed_per_inst_executed.ratio": 1.0}
    found = diagnosed({}, {"long_scoreboard": 0.9, "wait": 0.02}, more=lanes)
    assert found.verdict.id == _ids(found)[0] == "latency_long_scoreboard"


def test_special_functions_are_not_waited_for_because_of_a_few_bank_conflicts(diagnosed):
    stalls = {"short_scoreboard": 0.7, "long_scoreboard": 0.05}
    busy = {"sm__inst_executed_pipe_xu": 55.0, "l1tex__data_pipe_lsu_wavefronts": 8.0}
    found = diagnosed(busy, stalls, more=_conflicts(0.9))
    assert _ids(found)[0] == "latency_short_scoreboard"
    assert {one.id: one.confidence for one in found.findings}["shared_bank_conflicts"] == "low"


def test_spills_next_to_copies_of_tiles_do_not_cause_the_limit(diagnosed):
    values = {
        _SECTORS.format("local", "ld"): 6e5, _SECTORS.format("local", "st"): 3e5,
        _SECTORS.format("global", "ld"): 0.0, _SECTORS.format("global", "st"): 1e5,
        "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 1.6e9,
    }  # fmt: skip
    found = diagnosed({"dram__cycles_active": 90.0}, more=values)
    assert _ids(found) == ["dram_roof"]


def test_spills_that_are_little_of_the_traffic_do_not_cause_the_limit(diagnosed):
    values = {
        _SECTORS.format("local", "ld"): 1e4, _SECTORS.format("global", "ld"): 0.0,
        "lts__t_sectors.sum": 1e8,
    }  # fmt: skip
    found = diagnosed({"lts__t_sectors": 90.0}, more=values)
    assert _ids(found) == ["l2_roof"]
    assert "local_memory" in [one.id for one in found.suppressed]


def test_conflicts_of_a_few_accesses_do_not_cause_the_limit_of_the_cache(diagnosed):
    """The stage is busy with loads from global memory."""
    few = {**_conflicts(0.99), f"{_SHARED}.sum.pct_of_peak_sustained_elapsed": 0.1}
    found = diagnosed({_L1: 92.0}, more=few)
    assert (found.verdict.id, _ids(found)) == ("l1_roof", ["l1_roof"])


def test_inputs_that_are_read_again_cause_no_wait_where_the_memory_has_little_to_do(diagnosed):
    work = GemmWork(m=64, n=64, k=64, lhs=F32, rhs=F32, result=F32)
    moved = {"dram__bytes_read.sum": 1e6, "dram__bytes_write.sum": 1e5}
    assert _ids(diagnosed(more=moved, work=work))[0] == "latency_long_scoreboard"
    busy = diagnosed({"dram__cycles_active": 50.0}, more=moved, work=work)
    assert _ids(busy)[0] == "l2_reuse"


def test_atomics_cause_waiting(diagnosed):
    requests = {
        _REQUESTS.format("global", "red"): 1e6, _REQUESTS.format("global", "atom"): 0.0,
        _REQUESTS.format("global", "ld"): 1e5, _REQUESTS.format("global", "st"): 0.0,
    }  # fmt: skip
    found = diagnosed(stalls={"lg_throttle": 0.7, "long_scoreboard": 0.1}, more=requests)
    assert _ids(found)[0] == "atomics"


def test_atomics_next_to_copies_of_tiles_do_not_matter(diagnosed):
    few = {
        _REQUESTS.format("global", "atom"): 190.0, _REQUESTS.format("global", "red"): 0.0,
        _REQUESTS.format("global", "ld"): 0.0, _REQUESTS.format("global", "st"): 0.0,
        "lts__t_sectors_srcunit_tex_op_atom.sum": 190.0,
        "lts__t_sectors_srcunit_tex_op_red.sum": 0.0,
        "lts__t_sectors_srcunit_tex_op_read.sum": 26e6,
    }  # fmt: skip
    assert "atomics" not in _ids(diagnosed(more=few))


def _occupancy(limit, allowed=12.5):
    limits = {f"launch__occupancy_limit_{name}": 16.0
              for name in ("blocks", "registers", "shared_mem", "warps")}  # fmt: skip
    return {
        **limits, f"launch__occupancy_limit_{limit}": 1.0,
        "sm__maximum_warps_per_active_cycle_pct": allowed,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 0.95 * allowed,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("registers", "occupancy_registers"), ("shared_mem", "occupancy_shared_memory"),
     ("warps", "occupancy_block_size")],
)  # fmt: skip
def test_few_warps_cause_waiting_for_latencies_that_more_warps_hide(diagnosed, limit, expected):
    found = diagnosed(more=_occupancy(limit))
    assert found.verdict.id == "latency_long_scoreboard"
    assert _ids(found)[0] == expected


def test_few_warps_do_not_cause_waiting_at_barriers(diagnosed):
    found = diagnosed(stalls={"barrier": 0.8, "long_scoreboard": 0.0}, more=_occupancy("registers"))
    assert _ids(found) == ["latency_barrier", "occupancy_registers"]


def test_few_warps_are_normal_where_copies_are_asynchronous(diagnosed):
    copies = {"smsp__inst_executed_op_tma_ld.sum": 1e5}
    found = diagnosed(more={**_occupancy("registers"), **copies})
    assert _ids(found) == ["latency_long_scoreboard"]
    assert [one.id for one in found.suppressed] == ["occupancy_registers"]


def test_half_of_the_warps_are_not_few(diagnosed):
    assert _ids(diagnosed(more=_occupancy("registers", 62.5))) == ["latency_long_scoreboard"]


def test_a_grid_that_fills_few_warps(diagnosed):
    few = {
        "launch__waves_per_multiprocessor": 0.1,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 10.0,
    }
    found = diagnosed(more=few)
    assert (found.verdict.id, _ids(found)[0]) == ("latency_long_scoreboard", "grid_too_small")


def test_multiplications_by_instructions_with_a_lower_peak(diagnosed):
    ops = "sm__ops_path_tensor_op_{}_src_bf16_dst_fp32_sparsity_off.sum"
    more = {
        ops.format("hmma"): 1e9, ops.format("hmma") + ".peak_sustained": 360_448.0,
        ops.format("hgmma"): 0.0, ops.format("hgmma") + ".peak_sustained": 540_672.0,
    }  # fmt: skip
    found = diagnosed({"sm__pipe_tensor_cycles_active": 85.0}, more=more)
    assert _ids(found)[:2] == ["tensor_roof", "mma_sync"]
    assert found.findings[1].ceiling == "at most 1.50×"
    more[ops.format("hgmma")], more[ops.format("hmma")] = 1e9, 0.0
    assert "mma_sync" not in _ids(diagnosed({"sm__pipe_tensor_cycles_active": 65.0}, more=more))


def test_a_low_clock_matters_for_what_it_drives(diagnosed):
    clocks = {"gpc__cycles_elapsed.avg.per_second": 1.5e9, "device__attribute_clock_rate": 2e6}
    at_tensor = diagnosed({"sm__pipe_tensor_cycles_active": 90.0}, more=clocks)
    assert _ids(at_tensor) == ["tensor_roof", "low_clock"]
    assert at_tensor.findings[1].ceiling == "at most 1.33×"
    at_memory = diagnosed({"dram__cycles_active": 90.0}, more=clocks)
    assert _ids(at_memory) == ["dram_roof"]


_OCCUPANCY = {
    "sm__maximum_warps_per_active_cycle_pct": 12.5,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 12.0,
    "launch__occupancy_limit_registers": 1.0, "launch__occupancy_limit_shared_mem": 4.0,
}  # fmt: skip


def test_more_warps_gain_no_more_than_the_busiest_unit_allows(diagnosed):
    assert (
        _ceiling(diagnosed({_L1: 12.0, "sm__issue_active": 12.0}, more=_OCCUPANCY)) == "at most 8×"
    )
    busy = diagnosed({"dram__cycles_active": 50.0}, more=_OCCUPANCY)
    assert _ceiling(busy) == "at most 2×, when device memory is at its limit"


def _ceiling(found, name="occupancy_registers"):
    return next(one.ceiling for one in found.findings if one.id == name)


def test_few_warps_do_not_matter_where_an_unnamed_unit_is_at_its_limit(diagnosed):
    """The details page shows how busy multiprocessors are, but not with what."""
    found = diagnosed(more=_OCCUPANCY | {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 90.0})
    assert found.verdict.id == "cannot_tell"
    assert "which unit works at 90 % of its peak rate (sm__throughput" in found.verdict.claim
    assert "occupancy_registers" not in _ids(found)
    reasons = {one.id: one.reason for one in found.suppressed}
    assert reasons["occupancy_registers"].startswith("a unit of the GPU is busy for 90.0 %")


def test_a_higher_clock_gains_no_more_than_device_memory_allows(diagnosed):
    clocks = {"gpc__cycles_elapsed.avg.per_second": 1e9, "device__attribute_clock_rate": 2e6}
    found = diagnosed({"dram__cycles_active": 66.0}, more=clocks)
    assert found.verdict.id == "latency_long_scoreboard"
    assert _ceiling(found, "low_clock") == "at most 1.52×, when device memory is at its limit"
