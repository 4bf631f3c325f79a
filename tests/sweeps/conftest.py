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

    def document(name, slowdown, **changed):
        points = [
            sweeps.MadePoint(
                threads=threads, channels=channels, repeat=repeat, layers=2, steps=2,
                slowdown={sweeps.UP.kernel: slowdown}, **changed,
            )
            for threads, channels in ((256, 4), (256, 8), (512, 4))
            for repeat in (1, 2)
        ]  # fmt: skip
        return sweep_result(analyse_sweep(sweeps.write_sweep(folder / name, points))).document()

    return [document("before", 1.3), document("after", 1.6, nccl="2.30.7", comm_ns=400_000)]


@pytest.fixture(scope="session")
def compared_page(documents):
    before, after = documents
    sweeps = [LabelledSweep(label="A", document=before), LabelledSweep(label="B", document=after)]
    return comparison_page(compare_sweeps(sweeps), sweeps)
