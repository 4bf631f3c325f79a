"""Launch sizes under NCCL's settings, for cases read in its sources."""

from __future__ import annotations

from gemmetry.sweeps.nccl_settings import (
    channel_limit,
    executions,
    obeyed_rccl_threads,
    obeyed_threads,
    small_below,
)


def test_what_the_library_makes_of_a_request():
    """RCCL rounds threads to wavefronts."""
    threads = {256: 256, 512: 512, 640: 512, 100: 512, 32: 64, 96: 96}
    assert {requested: obeyed_threads(requested) for requested in threads} == threads
    wavefronts = {256: 256, 250: 256, 512: 256, 64: 192, 192: 192}
    assert {requested: obeyed_rccl_threads(requested) for requested in wavefronts} == wavefronts
    limits = {"2.28.9": 64, "2.25.1": 64, "2.24.3": 32, None: 64, "x": 64, "": 64}
    assert {version: channel_limit(version) for version in limits} == limits


def _blocks(found, algorithm, protocol):
    return {one.block for one in found if (one.algorithm, one.protocol) == (algorithm, protocol)}


def test_blocks_of_a_ring_follow_the_threads_and_halve():
    found = executions("all_reduce", None, None, 256)
    assert _blocks(found, "ring", "simple") == {288, 160, 128}
    assert _blocks(found, "ring", "ll") == {256, 128}
    assert _blocks(found, "ring", "ll128") == {640, 320}


def test_other_algorithms_have_640_threads_and_names_restrict_them():
    for threads in (64, 512):
        found = executions("all_reduce", None, None, threads)
        fixed = [one for one in found if one.algorithm != "ring" and not one.is_halved]
        assert {one.block for one in fixed} == {640}
        assert {one.algorithm for one in fixed} == {
            "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain",
        }  # fmt: skip
    assert {one.algorithm for one in executions("broadcast", None, None, 512)} == {"ring"}
    found = executions("all_reduce", None, None, 512, is_no_tree=True)
    assert "tree" not in {one.algorithm for one in found}
    assert {one.protocol for one in executions("all_gather", "ring", "ll", 512)} == {"ll"}


def test_small_messages():
    simple = executions("all_gather", "ring", "simple", 512)
    assert small_below(8, simple, 512, 4) == 8 * 512 * 64
    low_latency = executions("all_gather", "ring", "ll", 512)
    assert small_below(8, low_latency, 512, 16) == 8 * 512 * 8 * 16
