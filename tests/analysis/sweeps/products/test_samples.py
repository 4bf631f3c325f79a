"""Durations of all GEMMs of a sweep on one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmetry.documents.sweep_files import product_sweep, sweep_samples
from gemmetry.sweeps.points import analyse_sweep


def test_instances_are_multiples_of_the_median_alone(products):
    found = sweep_samples(products.points)
    assert found.is_of_alone
    assert (found.kinds, found.left_out, len(found.ranks)) == (2, 0, 3 * 2)
    assert found.count == sum(gemm.count for point in products.points for gemm in point.gemms)
    for one in found.ranks:
        assert np.median(one.alone) == pytest.approx(1.0, abs=0.01)
        # One of the two GEMMs is slowed by 1.3.
        assert np.quantile(one.overlapped, 0.9) == pytest.approx(1.3, abs=0.02)


def test_a_gemm_that_never_ran_alone_has_no_scale(tmp_path, sweeps, products):
    made = sweeps.MadePoint(ranks=1, steps=1, layers=2, has_control=False)
    found = product_sweep(analyse_sweep(sweeps.write_sweep(tmp_path, [made])))
    never = sweep_samples(found.points)
    assert (never.is_of_alone, never.kinds, never.left_out) == (False, 2, 0)
    # Next to a GEMM that has a scale it is left out.
    without = [gemm for gemm in found.points[0].gemms if gemm.kind.kernel == sweeps.UP.kernel]
    others = [gemm for gemm in products.points[0].gemms if gemm.kind.kernel != sweeps.UP.kernel]
    mixed = sweep_samples([replace(products.points[0], gemms=(*without, *others))])
    assert (mixed.is_of_alone, mixed.kinds, mixed.left_out) == (True, 1, 1)


def test_workbooks_do_not_show_what_ran_alone(products):
    points = [
        replace(point, gemms=tuple(replace(gemm, traced=None) for gemm in point.gemms))
        for point in products.points
    ]
    found = sweep_samples(points)
    assert not found.is_of_alone
    assert not any(len(one.overlapped) for one in found.ranks)
