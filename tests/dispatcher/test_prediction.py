from __future__ import annotations

import math

import pytest

from gemmetry.dispatcher.prediction import Predictor
from gemmetry.dispatcher.problems import MatmulProblem

from .conftest import SIGNATURE, entry, table_of


def shapes(cublas, a):
    sizes = (2048, 2560, 3072, 3584, 4096)
    return [entry(m, 4096, 4096, cublas=cublas(m), a=a(m)) for m in sizes]


def predictor(entries):
    return Predictor(table_of(*entries, target="cuda-sm_90", device="NVIDIA H200"))


def test_measured_shapes_calibrate_the_model():
    entries = shapes(lambda m: 100.0 * m, lambda m: 90.0 * m)
    found = predictor(entries).predictions(MatmulProblem(SIGNATURE, 2816, 4096, 4096))["blocked:a"]
    assert found.is_faster
    assert math.exp(found.value) == pytest.approx(0.9, abs=0.08)


def test_a_candidate_without_times_nearby_borrows_from_its_provider():
    entries = shapes(lambda m: 100.0 * m, lambda m: 90.0 * m)
    entries.append(entry(16, 512, 512, cublas=1.0, a=1.0, b=1.0))
    found = predictor(entries)
    problem = MatmulProblem(SIGNATURE, 2816, 4096, 4096)
    a, b = (found.predictions(problem)[f"blocked:{name}"] for name in "ab")
    assert b.value == pytest.approx(a.value, abs=0.02)
    assert b.cautious > a.cautious, "less is known of it"


def test_contradicting_measurements_are_no_evidence():
    entries = shapes(lambda m: 100.0, lambda m: 80.0 if m % 1024 else 120.0)
    found = predictor(entries).predictions(MatmulProblem(SIGNATURE, 2816, 4096, 4096))["blocked:a"]
    assert not found.is_faster


@pytest.mark.parametrize(
    ("count", "problem"),
    [(2, MatmulProblem(SIGNATURE, 2816, 4096, 4096)), (5, MatmulProblem(SIGNATURE, 1, 128, 128)),
     (5, MatmulProblem("f16t_f16n_f16t", 2816, 4096, 4096))],
)  # fmt: skip
def test_without_measurements_nearby_nothing_is_predicted(count, problem):
    entries = shapes(lambda m: 100.0, lambda m: 50.0)[:count]
    assert predictor(entries).predictions(problem) == {}
