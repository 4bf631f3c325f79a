from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration, parse_operation
from gemmetry.tuning.dispatcher.table import MatmulProblem, operation_of, problem_of, tail_class

NAME = "matmul_17x256x64_bf16t_bf16n_f32t_alpha2_bias_relu"


def test_a_problem_is_its_operation_and_back():
    problem = problem_of(parse_operation(NAME))
    assert problem == MatmulProblem("bf16t_bf16n_f32t_alpha2_bias_relu", 17, 256, 64)
    assert problem.name == NAME
    assert operation_of(problem) == parse_operation(NAME)


def test_rows_fall_into_buckets_and_distances_are_octaves():
    rows = [MatmulProblem("x", m, 1, 1).row_bucket for m in (1, 2, 3, 9, 128, 129, 257)]
    assert rows == [1, 2, 4, 16, 128, 256, 512]
    small, large = MatmulProblem("x", 8, 64, 64), MatmulProblem("x", 64, 64, 1024)
    assert small.distance(large) == pytest.approx(5)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((128, 64, 64), "whole"), ((127, 64, 64), "m"), ((1, 65, 63), "mnk"), ((128, 32, 64), "n")],
)
def test_classes_of_tails(shape, wanted):
    tile = Configuration("a", {"tile_m": 128, "tile_n": 64, "tile_k": 32})
    assert tail_class(MatmulProblem("x", *shape), tile) == wanted
