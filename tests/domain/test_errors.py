from __future__ import annotations

import re

import pytest

from gemmetry.domain import errors
from gemmetry.domain.errors import (
    DispatchError,
    EnvironmentFailure,
    GemmetryError,
    RequestError,
    SpecError,
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
    for cls in CLASSES:
        if issubclass(cls, branch):
            assert cls.exit_status == status


def test_the_hint_is_on_a_line_of_its_own():
    error = RequestError("no such thing", hint="Make one.")
    assert str(error) == "no such thing\n  Make one."
    assert (error.message, error.hint) == ("no such thing", "Make one.")
    assert str(RequestError("alone")) == "alone"


def test_unknown_names_suggest_the_nearest():
    error = UnknownNameError("provider", "Trton", ["triton", "torch", "iree"], where="spec.yaml")
    assert error.message == "unknown provider 'Trton' in spec.yaml"
    assert error.hint.startswith("Did you mean triton")
    assert error.name == "Trton"


def test_unknown_names_far_from_all_list_what_is_known():
    error = UnknownNameError("layout", "zzzzzz", ["t", "n"])
    assert error.hint == "Known: n, t"
    assert UnknownNameError("layout", "zzzzzz", []).hint == "None is known here."


def test_a_long_list_is_cut_and_what_is_left_out_is_counted():
    names = [f"name{number:02}" for number in range(40)]
    hint = UnknownNameError("column", "zzz", names).hint
    assert hint == f"Known: {', '.join(names[:12])} and 28 more"
    assert UnknownNameError("column", "zzz", names[:13]).hint == f"Known: {', '.join(names[:13])}"


@pytest.mark.parametrize(("name", "hint"), [("alpha1", "Did you mean alpha2? Write it."),
                                            ("zzz", "Known: alpha2. Write it.")])  # fmt: skip
def test_a_hint_may_end_with_a_sentence(name, hint):
    assert UnknownNameError("key", name, ["alpha2"], more="Write it.").hint == hint


def test_nearest_ignores_case_and_puts_the_best_first():
    assert nearest("MATMUL_SPLIT", ["batch_matmul", "Matmul_SplitK", "conv2d"])[0] == (
        "Matmul_SplitK"
    )
    assert nearest("qqq", ["matmul"]) == []


def test_a_spec_error_lists_all_mistakes():
    error = SpecError(["a.yaml:1:2: x", "a.yaml:3:4: y"], hint="See gemmetry schema.")
    assert error.mistakes == ("a.yaml:1:2: x", "a.yaml:3:4: y")
    assert str(error).splitlines() == ["a.yaml:1:2: x", "a.yaml:3:4: y", "  See gemmetry schema."]


def test_names_that_are_longer_by_an_underscore_are_suggested_first():
    known = ("float", "float64", "float8_e4m3fn", "float8_e5m2")
    assert nearest("float8", known)[:2] == ["float8_e4m3fn", "float8_e5m2"]
    assert nearest("flaot64", known)[0] == "float64"
