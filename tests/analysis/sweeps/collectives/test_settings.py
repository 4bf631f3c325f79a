"""Whether settings took effect, for launches as NCCL's sources give them and for planted ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.sweeps.nccl_settings import setting_verdicts, sweep_verdicts
from gemmetry.sweeps.points import PointSelection, analyse_sweep

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TREE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"
SYMMETRIC = "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)"
SENDS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
COPY = "Memcpy PtoP (Device -> Device)"
GENERIC = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"

ROOT = Path(__file__).parents[4]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")


@pytest.fixture
def verdict(point, facts):
    """The verdict on one setting of a point with one rank."""

    def judge(name, launches, *, on_gpu=True, device="NVIDIA H200", nccl="2.28.9", **chosen):
        made = point(**chosen)
        found = setting_verdicts(
            made, [facts(*launches, on_gpu=on_gpu, device=device, nccl=nccl)]
        )  # fmt: skip
        return {one.name: one for one in found}[name]

    return judge


AMD = {"device": "AMD Instinct MI300X", "nccl": None}
LL128 = "ncclKernel_AllGather_RING_LL128_x"


@pytest.mark.parametrize(
    ("launches", "chosen", "expected", "seen"),
    [
        ([{"grid": 8}], {}, "in effect", "8"),
        ([{"grid": 16}], {}, "not in effect", "16"),
        ([{"grid": 1}] * 2, {"channels": 1}, "in effect", "1"),
        ([{"grid": 64}], {"channels": 70}, "clamped to 64", "64"),
        ([{"grid": 32}], {"channels": 42, "nccl": "2.23.4"}, "clamped to 32", "32"),
        ([{"grid": 24}], {"channels": 28}, "clamped to 24", "24"),
        # Small messages and unknown sizes leave the channels open; large messages decide.
        ([{"grid": 4, "size": 1 << 16}], {}, "unknown", "4"),
        ([{"grid": 4, "size": None}], {}, "unknown", "4"),
        ([{"grid": 8, "size": None}], {}, "in effect", "8"),
        ([{"grid": 0, "block": 0}], {}, "unknown", None),
        ([{"grid": 1, "size": 4}, {"grid": 8}], {}, "in effect", "8"),
        ([{"kernel": GENERIC, "grid": 28}], {"channels": 28, **AMD}, "in effect", "28"),
    ],
)
def test_channels(verdict, launch, launches, chosen, expected, seen):
    found = verdict("channels", [launch(**one) for one in launches], **chosen)
    assert (found.seen, found.verdict) == (seen, expected)


def test_reasons(verdict, launch):
    assert verdict("channels", [launch(grid=16)]).reason.endswith("16 blocks in 1 launch")
    found = verdict("channels", [launch(grid=1), launch(grid=1)], channels=1)
    assert found.reason.endswith(": 1 block in 2 launches")
    one = launch(LL128, protocol="ll128", algorithm="ring", block=640)
    assert "NCCL_LL128_NTHREADS" in verdict("threads", [one]).reason


@pytest.mark.parametrize(
    ("threads", "given", "expected", "seen"),
    [
        (256, {"block": 288}, "in effect", "256"),  # ring, simple
        (256, {"block": 256}, "in effect", "256"),  # ring, LL
        (512, {"block": 544}, "in effect", "512"),
        (1024, {"block": 544}, "clamped to 512", "512"),
        (100, {"block": 544}, "clamped to 512", "512"),
        (32, {"block": 128}, "clamped to 64", "64"),
        (256, {"block": 544}, "not in effect", "544"),
        (512, {"block": 288}, "not in effect", "288"),
        (256, {"block": 640}, "not applicable", "640"),
        # Only on a single channel are threads reduced for the size of a message.
        (512, {"block": 288, "grid": 1, "size": 1 << 12}, "unknown", "288"),
        (512, {"block": 288, "grid": 8}, "not in effect", "288"),
        (256, {"kernel": TREE, "op": "all_reduce", "block": 640}, "not applicable", "640"),
        (256, {"kernel": SENDS, "op": "all_to_all", "block": 640}, "not applicable", "640"),
        (256, {"kernel": SYMMETRIC, "op": "all_gather", "block": 512}, "not applicable", "512"),
        (256, {"kernel": LL128, "protocol": "ll128", "algorithm": "ring", "block": 640},
         "not applicable", "640"),
    ],
)  # fmt: skip
def test_threads(verdict, launch, threads, given, expected, seen):
    found = verdict("threads", [launch(**given)], threads=threads)
    assert (found.verdict, found.seen) == (expected, seen), found.reason


@pytest.mark.parametrize(
    ("threads", "block", "expected"),
    [(256, 256, "in effect"), (512, 256, "clamped to 256"), (256, 192, "not in effect")],
)
def test_threads_of_rccl(verdict, launch, threads, block, expected):
    found = verdict("threads", [launch(GENERIC, block=block)], threads=threads, **AMD)
    assert found.verdict == expected


def test_gloo(verdict, launch):
    for name in ("channels", "threads"):
        host = [launch("gloo:all_reduce", op="all_reduce", grid=0, block=0)]
        found = verdict(name, host, on_gpu=False)
        assert found.verdict == "not applicable"
        assert "settings of NCCL do not apply" in found.reason, "whatever the setting is"


def test_no_communication_and_no_traces(verdict, point):
    found = verdict("threads", [])
    assert (found.verdict, found.seen) == ("unknown", None)
    assert {one.verdict for one in setting_verdicts(point(), [])} == {"unknown"}


def test_each_kind_has_its_verdict(verdict, launch):
    """An all-reduce by NVLS next to an all-gather by the ring."""
    found = verdict("threads", [launch(duration=1), launch(REDUCE, op="all_reduce", block=640,
                                                          duration=2)])  # fmt: skip
    assert found.verdict == "in effect"
    assert [(one.operation, one.verdict) for one in found.collectives] == [
        ("all_reduce", "not applicable"), ("all_gather", "in effect"),
    ]  # fmt: skip


def test_one_kind_without_effect_outweighs_the_others(verdict, launch):
    found = verdict("channels", [launch(), launch(SCATTER, op="reduce_scatter", grid=16)])
    assert found.verdict == "not in effect"
    assert found.seen == "16"


@pytest.mark.parametrize(
    ("name", "value", "kernel", "op", "block", "expected"),
    [
        ("NCCL_ALGO", "Tree", TREE, "all_reduce", 640, "in effect"),
        ("NCCL_ALGO", "Ring", TREE, "all_reduce", 640, "not in effect"),
        ("NCCL_ALGO", "Ring", REDUCE, "all_reduce", 288, "in effect"),
        ("NCCL_ALGO", "Tree", REDUCE, "all_reduce", 640, "not in effect"),
        ("NCCL_ALGO", "NVLS", REDUCE, "all_reduce", 640, "unknown"),
        ("NCCL_ALGO", "NVLS", REDUCE, "all_reduce", 288, "not in effect"),
        ("NCCL_ALGO", "PAT", REDUCE, "all_reduce", 288, "not applicable"),
        ("NCCL_ALGO", "ring,tree", REDUCE, "all_reduce", 288, "unknown"),
        ("NCCL_PROTO", "Simple", REDUCE, "all_reduce", 288, "in effect"),
        ("NCCL_PROTO", "LL", REDUCE, "all_reduce", 256, "in effect"),
        ("NCCL_PROTO", "LL128", REDUCE, "all_reduce", 288, "not in effect"),
        ("NCCL_MAX_CTAS", "16", REDUCE, "all_reduce", 288, "in effect"),
        ("NCCL_MAX_CTAS", "4", REDUCE, "all_reduce", 288, "not in effect"),
        ("NCCL_MIN_CTAS", "4", REDUCE, "all_reduce", 288, "in effect"),
        ("NCCL_MIN_CTAS", "12", REDUCE, "all_reduce", 288, "clamped to 8"),
        ("NCCL_BUFFSIZE", "4194304", REDUCE, "all_reduce", 288, "unknown"),
        ("NCCL_CTA_POLICY", "ZERO", SYMMETRIC, "all_gather", 512, "not in effect"),
        ("NCCL_CTA_POLICY", "2", COPY, "copy", 0, "in effect"),
        ("NCCL_CTA_POLICY", "1", REDUCE, "all_reduce", 288, "unknown"),
    ],
)
def test_axes(verdict, launch, name, value, kernel, op, block, expected):
    algorithm = "tree" if kernel == TREE else None
    found = verdict(
        name, [launch(kernel, op=op, block=block, algorithm=algorithm)], **{name: value}
    )
    assert found.verdict == expected, found


@pytest.mark.parametrize(
    ("path", "kernel", "op", "expected", "seen"),
    [
        ("copy_engine", COPY, "copy", "in effect", "copy_engine"),
        ("copy_engine", SYMMETRIC, "all_gather", "not in effect", "symmetric"),
        ("copy_engine", SCATTER, "reduce_scatter", "not applicable", "kernel"),
        ("symmetric", SYMMETRIC, "all_gather", "in effect", "symmetric"),
        ("symmetric", SCATTER, "reduce_scatter", "not in effect", "kernel"),
        ("symmetric", SENDS, "all_to_all", "not applicable", "kernel"),
        ("kernel", SCATTER, "reduce_scatter", "in effect", "kernel"),
        ("kernel", SYMMETRIC, "all_gather", "not in effect", "symmetric"),
    ],
)
def test_path(verdict, launch, path, kernel, op, expected, seen):
    found = verdict("path", [launch(kernel, op=op)], path=path)
    assert (found.verdict, found.seen) == (expected, seen), found


def test_copy_engines_that_fall_back_for_some(verdict, launch):
    found = verdict("path", [launch(COPY, op="copy"), launch(SYMMETRIC)], path="copy_engine")
    assert found.verdict == "not in effect"


@pytest.fixture
def whole(point, facts):
    """The verdicts on a sweep, from (settings, launches) of its points."""

    def judge(*made):
        points = []
        for chosen, launches in made:
            one, ranks = point(**chosen), [facts(*launches)]
            points.append((one, setting_verdicts(one, ranks), ranks))
        return {found.name: found for found in sweep_verdicts(points)}

    return judge


def test_a_dead_axis_is_stated(whole, launch):
    found = whole(
        *[({"threads": threads}, [launch(REDUCE, op="all_reduce", block=640)])
          for threads in (256, 512)]
    )  # fmt: skip
    assert list(found) == ["threads"]
    assert found["threads"].verdict == "no effect"
    assert "NVLS" in found["threads"].reason


def test_values_that_the_library_clamps_are_named(whole, launch):
    found = whole(*[({"channels": n}, [launch(grid=min(n, 64))]) for n in (28, 56, 70)])
    assert found["channels"].verdict == "partly in effect"
    assert "channels=70 ran with 64" in found["channels"].reason


def test_values_are_in_order_whatever_the_points_are(whole, launch):
    found = whole(*[({"channels": n}, [launch(grid=min(n, 64))]) for n in (70, 16, 8)])
    assert found["channels"].values == ("8", "16", "70")
    assert "(70: clamped to 64; 8, 16: in effect)" in found["channels"].reason


def test_values_that_all_run_alike_have_no_effect(whole, launch):
    """One of them is what the library does anyway."""
    found = whole(*[({"threads": n}, [launch(block=544)]) for n in (256, 512)])
    assert found["threads"].verdict == "no effect"
    assert "every value ran alike" in found["threads"].reason
    limits = whole(*[({"NCCL_MAX_CTAS": n}, [launch(grid=8)]) for n in ("16", "32")])
    assert limits["NCCL_MAX_CTAS"].verdict == "no effect"


def test_small_messages_next_to_fixed_ones_leave_it_open(whole, launch):
    found = whole(*[({"channels": n}, [launch(grid=1, size=64)]) for n in (8, 16)])
    assert found["channels"].verdict == "unknown"


def test_an_axis_without_rules_is_judged_by_comparison(whole, launch):
    changes = [({"bucket_mb": str(n)}, [launch(size=n << 20)]) for n in (16, 32)]
    assert whole(*changes)["bucket_mb"].verdict == "in effect"
    same = [({"bucket_mb": str(n)}, [launch()]) for n in (16, 32)]
    assert whole(*same)["bucket_mb"].verdict == "unknown"


@pytest.mark.skipif(not (FOLDER / "sweep_h200x4").is_dir(), reason="needs sweep_h200x4")
def test_the_settings_of_a_real_sweep_are_in_effect():
    selection = PointSelection(channels=[4], ranks=[0])
    found = analyse_sweep(FOLDER / "sweep_h200x4", selection=selection, processes=1)
    assert {one.verdict for point in found.points for one in point.settings} == {"in effect"}
    kinds = [one for point in found.points for one in point.settings[1].collectives]
    assert {one.operation for one in kinds} == {"all_gather", "reduce_scatter"}
    assert {one.block for one in kinds} == {288, 544}
