from __future__ import annotations

import math

import pytest

from gemmetry.tuning.dispatcher.choosing import Chooser
from gemmetry.tuning.dispatcher.table import MatmulProblem

from .conftest import SIGNATURE, entry, table_of


def shapes(cublas, a):
    sizes = (2048, 2560, 3072, 3584, 4096)
    return [entry(m, 4096, 4096, cublas=cublas(m), a=a(m)) for m in sizes]


def predictor(entries):
    return Chooser(table_of(*entries, target="cuda-sm_90", device="NVIDIA H200"))


def test_the_nearer_a_measured_shape_the_more_it_counts():
    entries = shapes(lambda m: 100.0 * m, lambda m: 90.0 * m)
    found = predictor(entries).predictions(MatmulProblem(SIGNATURE, 2816, 4096, 4096))["blocked:a"]
    assert math.exp(found) == pytest.approx(0.9)
    rising = predictor(shapes(lambda m: 100.0, lambda m: m / 30))
    few, many = (
        math.exp(rising.predictions(MatmulProblem(SIGNATURE, m, 4096, 4096))["blocked:a"])
        for m in (2048, 4096)
    )
    assert 2048 / 3000 < few < 1 < many < 4096 / 3000


def test_what_all_of_a_provider_have_in_common_counts_a_little():
    entries = shapes(lambda m: 100.0, lambda m: 90.0)
    other = [entry(m, 4096, 4096, cublas=100.0, b=300.0) for m in (2049, 2561, 3073, 3585, 4097)]
    problem = MatmulProblem(SIGNATURE, 2816, 4096, 4096)
    alone = predictor(entries).predictions(problem)["blocked:a"]
    together = predictor([*entries, *other]).predictions(problem)["blocked:a"]
    assert alone < together < 0


def test_a_candidate_needs_measured_shapes_of_its_own():
    entries = shapes(lambda m: 100.0 * m, lambda m: 90.0 * m)
    entries += [entry(m, 4096, 4096, cublas=1.0, b=0.5) for m in (2100, 2200)]
    found = predictor(entries).predictions(MatmulProblem(SIGNATURE, 2816, 4096, 4096))
    assert set(found) == {"blocked:a"}


@pytest.mark.parametrize(
    ("count", "problem"),
    [(2, MatmulProblem(SIGNATURE, 2816, 4096, 4096)), (5, MatmulProblem(SIGNATURE, 1, 128, 128)),
     (5, MatmulProblem("f16t_f16n_f16t", 2816, 4096, 4096))],
)  # fmt: skip
def test_without_measurements_nearby_nothing_is_predicted(count, problem):
    entries = shapes(lambda m: 100.0, lambda m: 50.0)[:count]
    assert predictor(entries).predictions(problem) == {}
