from __future__ import annotations

from collections import Counter

from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.training.axes import AxisKind, SweepAxis, plan_points

ALGORITHMS = SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring", "^NVLS"))


def planned(threads=(), channels=(), axes=(), *, repeats=1, first_has_folder=False, seed=None):
    return plan_points(
        threads, channels, axes, repeats=repeats, first_has_folder=first_has_folder, seed=seed
    )


def test_folders_and_titles():
    one, other = planned((256,), (28,), (ALGORITHMS,))
    assert one.folder == "256thread/nccl_28channels/NCCL_ALGO=Ring"
    assert other.folder == "256thread/nccl_28channels/NCCL_ALGO=^NVLS"
    assert one.title == "256 threads, 28 channels, NCCL_ALGO=Ring"
    assert [point.folder for point in planned(channels=(1,))] == ["nccl_1channels"]
    assert [point.title for point in planned(channels=(1,))] == ["1 channel"]
    assert [point.folder for point in planned()] == ["repeat_01"]


def test_values_that_are_no_names_of_folders():
    paths = SweepAxis("NCCL_TOPO_FILE", AxisKind.VARIABLE, ("/a b/c.xml", ".."))
    assert [point.folder for point in planned(axes=(paths,))] == [
        "NCCL_TOPO_FILE=%2Fa%20b%2Fc.xml", "NCCL_TOPO_FILE=.."
    ]  # fmt: skip


def test_repeats_of_a_sweep_that_began_with_one_keep_its_folder():
    folders = [point.folder for point in planned((256,), (8,), repeats=2)]
    assert folders == ["256thread/nccl_8channels", "256thread/nccl_8channels/repeat_02"]
    folders = [point.folder for point in planned((256,), (8,), repeats=2, first_has_folder=True)]
    assert folders[0] == "256thread/nccl_8channels/repeat_01"


def test_each_repeat_is_shuffled_anew_and_complete():
    points = planned((256, 512), (1, 2, 4, 8), repeats=3, seed=1)
    blocks = [points[start : start + 8] for start in (0, 8, 16)]
    orders = [[(one.threads, one.channels) for one in block] for block in blocks]
    assert [{one.repeat for one in block} for block in blocks] == [{1}, {2}, {3}]
    assert all(Counter(order) == Counter(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert points == planned((256, 512), (1, 2, 4, 8), repeats=3, seed=1)
    assert points[:16] == planned((256, 512), (1, 2, 4, 8), repeats=2, seed=1)
    assert points != planned((256, 512), (1, 2, 4, 8), repeats=3, seed=2)


def test_the_analysis_reads_the_folders(tmp_path):
    points = planned((256, 512), (1,), (ALGORITHMS,), repeats=2, first_has_folder=True)
    for point in points:
        (tmp_path / point.folder / "torch_profiler").mkdir(parents=True)
    found = {
        (p.configuration.threads, p.configuration.channels, p.configuration.axes, p.repeat)
        for p in read_sweep(tmp_path).points
    }
    assert found == {(p.threads, p.channels, p.axes, p.repeat) for p in points}
