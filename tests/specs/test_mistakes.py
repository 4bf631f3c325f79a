from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from gemmetry.specs.mistakes import in_order, mistake_lines


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class _Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: _Inner = _Inner()
    parts: dict[str, int] = {}


def lines_of(values: object) -> list[str]:
    try:
        _Outer.model_validate(values)
    except ValidationError as error:
        return mistake_lines(error, lambda location, _: f"f:{len(location)}:1", _Outer)
    return []


def test_an_unknown_key_is_compared_with_those_of_its_section():
    assert lines_of({"inner": {"dpeth": 1}}) == ["f:2:1: unknown key 'dpeth'. Did you mean depth?"]
    assert lines_of({"iner": {}}) == ["f:1:1: unknown key 'iner'. Did you mean inner?"]


def test_a_value_is_named_with_its_section():
    assert lines_of({"inner": {"depth": "x"}}) == ["f:2:1: inner.depth: 'x' is not a whole number"]
    assert lines_of({"inner": 3}) == ["f:1:1: inner: 3 is not a mapping of keys to values"]
    assert lines_of({"parts": {"a": "x"}}) == ["f:2:1: parts: 'x' is not a whole number"]


def test_lines_are_in_the_order_of_the_file():
    lines = ["b:2:1: x", "a:10:1: x", "a:9:2: x", "a:9:2: x", "a:9:1: y"]
    assert in_order(lines) == ["a:9:1: y", "a:9:2: x", "a:10:1: x", "b:2:1: x"]
