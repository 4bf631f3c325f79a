"""Tests of what ptxas prints."""

from __future__ import annotations

import pytest

from gemmetry.hardware.cuda_plans import ResourceUsage, performance_notes, ptxas_usage

PRINTED = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
ptxas         .     512 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 512 bytes cumulative stack, 1024 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers
"""


def test_what_each_kernel_needs_is_read():
    assert ptxas_usage(PRINTED) == {
        "gemm": ResourceUsage(168, 40, 512, 1024),
        "other": ResourceUsage(26, 0, 0, 0),
    }
    assert ptxas_usage("ptxas fatal : unknown option") == {}


@pytest.mark.parametrize(
    "line",
    [
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources in the function 'gemm'",
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
        "determine register count at entry.",
        "wgmma.mma_async instructions are serialized",
    ],
)
def test_kernels_that_are_slower_than_their_source_are_noticed(line):
    assert performance_notes(f"{PRINTED}{line}\n") == [line]
    assert performance_notes(PRINTED) == []
