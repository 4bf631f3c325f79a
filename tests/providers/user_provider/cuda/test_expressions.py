from __future__ import annotations

import pytest

from gemmetry.providers.user_provider.cuda_manifest import parse_expression

NAMES = {"M": 1000, "N": 64, "K": 33, "TILE": 32}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (7, 7),
        ("TILE", 32),
        ("ceil(M, TILE)", 32),
        ("ceil(N, TILE) * ceil(M, TILE) + 1", 65),
        ("2 * (M + K) // TILE % 10", 4),
        ("min(M, N) - max(K, TILE, 1)", 31),
        ("-K", -33),
        ("K % 8 == 0", 0),
        ("0 < N <= 64 and not M == N or K < 0", 1),
    ],
)
def test_expressions_have_the_values_of_integer_arithmetic(text, value) -> None:
    found = parse_expression(text).value(NAMES)
    assert found == value
    assert type(found) is int


def test_the_names_that_an_expression_mentions_are_known() -> None:
    assert parse_expression("ceil(M, TILE) * min(N, 2)").names == {"M", "N", "TILE"}


@pytest.mark.parametrize(
    "text",
    [
        "", "M +", "M ** N", "M / N", "M << 2", "1.5", "'M'", "True", "f(M)", "min", "M.real",
        "[M]", "ceil(M, step=2)", "(lambda: M)()", "__import__('os')", "M if N else K", "M := 2",
        None, 1.5, True, ["M"],
    ],
)  # fmt: skip
def test_anything_else_is_refused(text) -> None:
    if text == "min":  # a name like any other, which the manifest does not know
        assert parse_expression(text).names == set()
        return
    with pytest.raises(ValueError, match=r"expression|made of"):
        parse_expression(text)


def test_a_plain_division_is_refused_with_the_one_to_write() -> None:
    with pytest.raises(ValueError, match="// divides"):
        parse_expression("M / 2")


@pytest.mark.parametrize("text", ["M // (N - 64)", "M % 0", "ceil(M)", "min()"])
def test_an_expression_without_a_value_names_itself(text) -> None:
    with pytest.raises(ValueError, match="has no value"):
        parse_expression(text).value(NAMES)
