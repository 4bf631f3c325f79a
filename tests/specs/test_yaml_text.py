from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import SpecError
from gemmetry.domain.specs import yaml_text
from gemmetry.domain.specs.yaml_text import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("64:1024:128", "64:1024:128"),
        ("1e5", 100000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("0o17", 15),
        ("0x10", 16),
        ("010", 10),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("2024-01-01", "2024-01-01"),
        ("[1, a]", [1, "a"]),
        ("", {}),
    ],
)
def test_scalars(text, value):
    read = read_yaml(text, "f").value
    assert read == value
    assert type(read) is type(value)


def test_places_of_keys_and_values():
    document = read_yaml("a: 1\nb:\n  - x\n  - y: 2\n", "f.yaml")
    assert document.value == {"a": 1, "b": ["x", {"y": 2}]}
    assert document.place(("a",)) == "f.yaml:1:4"
    assert document.place(("a",), of_key=True) == "f.yaml:1:1"
    assert document.place(("b", 1, "y")) == "f.yaml:4:8"
    assert document.place(("b", 0, "deeper")) == "f.yaml:3:5"
    assert document.place(("missing",)) == "f.yaml:1:1"


def test_a_repeated_key_is_reported():
    document = read_yaml("seed: 1\nSEED: 2\n", "f.yaml", str.lower)
    assert document.mistakes == [
        "f.yaml:2:1: the key 'SEED' (or seed) appears twice; it is first at 1:1"
    ]
    assert document.value == {"seed": 1}


@pytest.mark.parametrize("text", ["a: [1", "a:\n\t- b", "a: 'x", "*missing", "a: b: c", "\x00"])
def test_what_is_not_yaml_is_reported_with_its_place(text):
    with pytest.raises(SpecError, match=r"f\.yaml:\d+:\d+: not YAML"):
        read_yaml(text, "f.yaml")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.getcwd []", "!!python/name:os.x ''"])
def test_tags_cannot_make_objects(tag):
    with pytest.raises(SpecError):
        read_yaml(tag, "f.yaml")


def test_aliases_are_values_but_no_bombs(monkeypatch):
    monkeypatch.setattr(yaml_text, "MAX_NODES", 10_000)
    assert read_yaml("a: &x [1]\nb: *x\n", "f.yaml").value == {"a": [1], "b": [1]}
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    with pytest.raises(SpecError, match="more than 10,000"):
        read_yaml("\n".join(lines), "f.yaml")
    with pytest.raises(SpecError, match="itself"):
        read_yaml("a: &a [*a]", "f.yaml")


NESTED = {
    "brackets": lambda depth: "[" * depth + "]" * depth,
    "brackets over lines": lambda depth: "[\n" * depth + "]" * depth,
    "braces": lambda depth: "{a: " * depth + "}" * depth,
    "lists": lambda depth: "- " * depth + "x",
    "mappings": lambda depth: "\n".join(" " * level + "a:" for level in range(depth)),
}


@pytest.mark.parametrize("how", NESTED)
def test_nesting_ends_at_our_own_limit_whatever_the_loader_allows(how):
    read_yaml(NESTED[how](yaml_text.MAX_DEPTH), "f.yaml")
    for depth in (yaml_text.MAX_DEPTH + 1, 5000):
        with pytest.raises(SpecError) as caught:
            read_yaml(NESTED[how](depth), "f.yaml")
        (mistake,) = caught.value.mistakes
        assert re.match(rf"f\.yaml:\d+:\d+: .*more than {yaml_text.MAX_DEPTH} deep", mistake)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=30))
def test_any_text_reads_or_is_our_error(text):
    try:
        read_yaml(text, "f.yaml")
    except SpecError as error:
        assert error.mistakes
