from __future__ import annotations

import pytest

from gemmetry.counters.catalogue import check_metric, chip_of, has_metric
from gemmetry.domain.errors import UnknownNameError


@pytest.mark.parametrize(
    ("given", "chip"),
    [
        ("gh100", "GH100"), ("9.0", "GH100"), ("sm_90a", "GH100"), ("sm_100", "GB100"),
        ("12.0", "GB202"), ("7.0", "GV100"), ("8.6", "GA102"), ("GA104", "GA104"),
        ("gfx942", "gfx942"), ("gfx90a:sramecc+:xnack-", "gfx90a"),
    ],
)  # fmt: skip
def test_a_chip_is_found_by_its_name_capability_or_architecture(given: str, chip: str) -> None:
    assert chip_of(given) == chip


@pytest.mark.parametrize(
    ("chip", "metric", "exists"),
    [
        ("GH100", "dram__bytes_read.sum", True),
        ("GB202", "dram__bytes_read.sum", False),
        ("GB202", "dram__bytes_op_read.sum", True),
        ("GB20B", "dram__bytes.sum", False),
        # The form that the Nsight Compute document requests.
        ("GH100", "smsp__average_warps_issue_stalled_barrier_per_issue_active.pct", True),
        ("GH100", "smsp__average_warps_issue_stalled_barrier_per_issue_active.sum", False),
        ("GB100", "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", False),
        ("GH100", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", True),
        ("GH100", "gpu__dram_throughput.avg", False),
        ("GH100", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum", False),
        ("GH100", "launch__registers_per_thread", True),
        ("GH100", "dram__bytes_read", False),
    ],
)  # fmt: skip
def test_metrics_exist_on_the_chips_that_list_them(chip: str, metric: str, exists: bool) -> None:
    assert has_metric(chip, metric) == exists


@pytest.mark.parametrize(
    ("check", "names", "similar"),
    [
        (chip_of, ["gh10"], "gh100"),
        (check_metric, ["GH100", "dram__byte_read.sum"], "dram__bytes_read.sum"),
        (check_metric, ["GH100", "dram__bytes_read.summ"], "dram__bytes_read.sum"),
    ],
)
def test_what_does_not_exist_suggests_a_similar_name(check, names, similar) -> None:
    with pytest.raises(UnknownNameError, match=names[-1]) as error:
        check(*names)
    assert similar in error.value.hint
    check(*names[:-1], similar)
