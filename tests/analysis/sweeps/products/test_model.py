"""Names of points in files, folders and tables."""

from __future__ import annotations

from pathlib import Path

from gemmetry.documents.sweep_files import ProductPoint
from gemmetry.sweeps.rows import SweepConfiguration


def named(*configuration, repeat=None):
    point = ProductPoint(configuration=SweepConfiguration(*configuration), repeat=repeat)
    start = point.rank_reports(Path("out"))
    assert point.collective_report(Path("out")).parent.parent == Path(start).parent.parent
    return point.full_config, start


def test_names_of_the_document():
    assert named(256, 28) == ("256thread_28ch", "out/256thread/individual_reports/"
                              "perf_28ch_")  # fmt: skip
    point = ProductPoint(configuration=SweepConfiguration(256, 28), repeat=None)
    path = point.collective_report(Path("out"))
    assert str(path) == "out/256thread/collective_reports/collective_28ch.xlsx"


def test_axes_and_repeats_have_folders_so_that_nothing_is_overwritten():
    assert named(256, 28, (("NCCL_ALGO", "Ring"), ("path", "a/b")), repeat=2) == (
        "256thread_28ch_NCCL_ALGO=Ring_path=a_b_repeat_02",
        "out/256thread/NCCL_ALGO=Ring/path=a_b/repeat_02/individual_reports/perf_28ch_",
    )
