"""A small sweep and its analysis, which the tests of its tables share."""

from __future__ import annotations

import pytest

from gemmetry.documents.sweep_files import reported_sweep
from gemmetry.sweeps.points import analyse_sweep


@pytest.fixture(scope="session")
def made_sweep(tmp_path_factory, sweeps):
    """Two channel counts of 256 threads, one of 512; one GEMM is slowed next to collectives."""
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
