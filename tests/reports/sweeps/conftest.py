"""The sweep that the tests of its files share."""

from __future__ import annotations

import pytest

from gemmetry.analysis.sweeps.analysis import analyse_sweep
from gemmetry.analysis.sweeps.products.traces import product_sweep


@pytest.fixture(scope="session")
def made_products(tmp_path_factory, sweeps):
    """Analysed points of which one did not run: 512 threads with 8 channels."""
    points = [
        sweeps.MadePoint(threads=threads, channels=channels, steps=2, layers=3,
                         slowdown={sweeps.UP.kernel: 1.3})
        for threads, channels in ((256, 4), (256, 8), (512, 4))
    ]  # fmt: skip
    folder = sweeps.write_sweep(tmp_path_factory.mktemp("products"), points)
    return product_sweep(analyse_sweep(folder))
