from __future__ import annotations

import re

import pytest

from gemmetry.domain import errors
from gemmetry.domain.errors import (
    DispatchError,
    EnvironmentFailure,
    GemmetryError,
    Outcome,
    RequestError,
    SpecError,
    Stage,
    UnknownNameError,
    nearest,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, GemmetryError)
]


def test_the_drawn_tree_is_the_real_one():
    parents = ["GemmetryError"]
    drawn = {"GemmetryError"}
    for indent, name in re.findall(
        r"^    ((?:│   |    )*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE
    ):
        level = 1 + len(indent) // 4
        parents[level:] = [name]
        drawn.add(name)
        assert getattr(errors, name).__base__.__name__ == parents[level - 1]
    assert drawn == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize(
    ("branch", "status"), [(RequestError, 2), (EnvironmentFailure, 3), (DispatchError, 1)]
)
def test_exit_statuses_follow_the_branch(branch, status):
    assert {cls.exit_status for cls in CLASSES if issubclass(cls, branch)} == {status}


def test_the_hint_is_on_a_line_of_its_own_after_all_mistakes():
    error = RequestError("no such thing", hint="Make one.")
    assert str(error) == "no such thing\n  Make one."
    assert (error.message, error.hint) == ("no such thing", "Make one.")
    assert str(RequestError("alone")) == "alone"
    error = SpecError(["a.yaml:1:2: x", "a.yaml:3:4: y"], hint="See gemmetry schema.")
    assert error.mistakes == ("a.yaml:1:2: x", "a.yaml:3:4: y")
    assert str(error).splitlines() == [*error.mistakes, "  See gemmetry schema."]


def test_which_outcomes_are_failures_or_have_a_time_and_the_order_of_stages():
    failures = {outcome for outcome in Outcome if outcome.is_failure}
    assert failures == {Outcome.WRONG, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}
    assert [outcome for outcome in Outcome if outcome.may_have_time] == [Outcome.OK]
    assert list(map(str, Stage)) == ["generate", "compile", "build", "verify", "measure", "trace"]


NAMES = [f"name{number:02}" for number in range(40)]


@pytest.mark.parametrize(("name", "known", "more", "hint"), [
    ("Trton", ["triton", "conv2d"], "", "Did you mean triton?"),
    ("zzzzzz", ["t", "n"], "", "Known: n, t"),
    ("zzzzzz", [], "", "None is known here."),
    ("zzz", NAMES, "", f"Known: {', '.join(NAMES[:12])} and 28 more"),
    ("zzz", NAMES[:13], "", f"Known: {', '.join(NAMES[:13])}"),
    ("alpha1", ["alpha2"], "Write it.", "Did you mean alpha2? Write it."),
    ("zzz", ["alpha2"], "Write it.", "Known: alpha2. Write it."),
])  # fmt: skip
def test_unknown_names_lead_to_the_nearest_or_to_those_that_are_known(name, known, more, hint):
    error = UnknownNameError("provider", name, known, where="spec.yaml", more=more)
    assert (error.name, error.hint) == (name, hint)
    assert error.message == f"unknown provider {name!r} in spec.yaml"


FLOATS = ("float", "float64", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize(("name", "known", "found"), [
    ("MATMUL_SPLIT", ["batch_matmul", "Matmul_SplitK", "conv2d"], ["Matmul_SplitK"]),
    ("qqq", ["matmul"], []),
    # Names that are longer by an underscore come first.
    ("float8", FLOATS, ["float8_e4m3fn", "float8_e5m2"]),
    ("flaot64", FLOATS, ["float64"]),
])  # fmt: skip
def test_the_nearest_names_are_found_whatever_their_case(name, known, found):
    assert nearest(name, known)[: max(1, len(found))] == found
