"""Sweeps that several tests share."""

from __future__ import annotations

import pytest

from gemmetry.documents.sweep_files import reported_sweep
from gemmetry.sweeps.comparison import LabelledSweep, compare_sweeps
from gemmetry.sweeps.page import comparison_page
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import sweep_result


@pytest.fixture(scope="session")
def made_sweep(tmp_path_factory, sweeps):
    """Points of which one did not run: 512 threads with 8 channels; one GEMM is slowed."""
    points = [
        sweeps.MadePoint(threads=threads, channels=channels, layers=3,
                         slowdown={sweeps.UP.kernel: 1.3})
        for threads, channels in ((256, 4), (256, 8), (512, 4))
    ]  # fmt: skip
    return sweeps.write_sweep(tmp_path_factory.mktemp("made"), points)


@pytest.fixture(scope="session")
def analysis(made_sweep):
    return analyse_sweep(made_sweep)


@pytest.fixture(scope="session")
def products(analysis):
    return reported_sweep(analysis)


@pytest.fixture(scope="session")
def documents(tmp_path_factory, sweeps):
    """Two sweeps; of the first one, 512 threads with 8 channels did not run."""
    folder = tmp_path_factory.mktemp("pages")
    grid = ((256, 4), (256, 8), (512, 4))
    options = {"layers": 2, "steps": 2}
    first = [sweeps.MadePoint(threads=t, channels=c, repeat=r, slowdown={sweeps.UP.kernel: 1.3},
                              **options) for t, c in grid for r in (1, 2)]  # fmt: skip
    second = [sweeps.MadePoint(threads=t, channels=c, repeat=r, nccl="2.30.7", comm_ns=400_000,
                               slowdown={sweeps.UP.kernel: 1.6}, **options)
              for t, c in grid for r in (1, 2)]  # fmt: skip
    return [
        sweep_result(analyse_sweep(sweeps.write_sweep(folder / name, points))).document()
        for name, points in (("before", first), ("after", second))
    ]


@pytest.fixture(scope="session")
def compared_page(documents):
    sweeps = [LabelledSweep(label=n, document=d) for n, d in zip("AB", documents, strict=True)]
    return comparison_page(compare_sweeps(sweeps), sweeps)
