from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.domain.specs.loader import (
    in_order,
    load_spec,
    make_spec,
    mistake_lines,
    parse_settings,
)

KNOWN = {"providers": ["iree", "null", "torch"], "columns": ["gflops", "all"]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spec.yaml"


def mistakes_of(path, text, **keywords):
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(path, known=KNOWN, **keywords)
    return [line.removeprefix(f"{path}:") for line in caught.value.mistakes]


@pytest.mark.parametrize(
    ("text", "places", "first"),
    [
        ("problem_m: 64:64:2\ndtypes: [f32, f61]\n# note\nnonsense: 3\n",
         ["1:12: problem_m", "2:9: dtypes", "4:1: unknown key 'nonsense'"],
         "the range '64:64:2' is empty"),
        ("providers:\n  - torsch\n  - name: iree\n    option: 3\nseed: -1\n"
         "deadlines: {bild: 3}\nseed: 3\n",
         ["2:5: ", "4:5: ", "5:7: ", "6:13: ", "7:1: "], "Did you mean torch?"),
        ("- a\n", ["1:1: "], "a spec is a mapping of keys to values"),
        ("3\n", ["1:1: "], "a spec is a mapping of keys to values"),
    ],
)  # fmt: skip
def test_all_mistakes_are_reported_with_file_line_and_column(path, text, places, first):
    found = mistakes_of(path, text)
    assert len(found) == len(places)
    assert all(line.startswith(place) for line, place in zip(found, places, strict=True))
    assert first in found[0]


def test_overrides_win_and_their_mistakes_name_the_option(path):
    path.write_text("seed: 1\ndtypes: f32\n")
    spec = load_spec(path, known=KNOWN, overrides={"seed": "7"})
    assert (spec.seed, spec.dtypes) == (7, ("f32",))
    assert mistakes_of(path, "seed: 1\n", overrides={"dtypes": "f61"}) == [
        "--dtypes: unknown dtype 'f61'. Did you mean f64, f16 or fp64?"
    ]


@pytest.mark.parametrize("text", ["", "\n  \n", "# nothing\n", "---\n"])
def test_an_empty_file_is_a_mistake_and_an_empty_mapping_the_default_request(path, text):
    path.write_text(text)
    with pytest.raises(RequestError, match=r"the spec .*spec\.yaml is empty") as caught:
        load_spec(path, overrides={"seed": 3})
    assert "leave out --spec" in caught.value.hint
    assert load_spec(path, may_be_empty=True) == make_spec({})
    path.write_text("{}\n")
    assert load_spec(path) == make_spec({})


def test_old_names_hyphens_and_capitals():
    spec = make_spec({"op-kind": "all", "BATCH_SIZE": 3, "random_seed": 5, "num_cpu": -1})
    found = (spec.operation_kind, spec.dispatch_repeat_count, spec.seed, spec.jobs)
    assert found == (("all",), 3, 5, -1)


def test_settings_are_yaml_and_reach_into_mappings():
    given = ["seed=7", "deadlines.compile=60", "dtypes=[f32, bf16]", "tags="]
    expected = {"seed": 7, "deadlines": {"compile": 60}, "dtypes": ["f32", "bf16"], "tags": ""}
    assert parse_settings(given) == expected
    for wrong in ("seed", "=3", "a=[1"):
        with pytest.raises(SpecError):
            parse_settings([wrong])


def test_columns_and_providers_are_checked_against_what_exists():
    with pytest.raises(SpecError) as caught:
        make_spec({"columns": "gflop", "providers": "tourch"}, known=KNOWN)
    assert len(caught.value.mistakes) == 2
    assert make_spec({"columns": "all"}, known=KNOWN).columns == ("all",)


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class _Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: _Inner = _Inner()
    parts: dict[str, int] | None = None


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"inner": {"dpeth": 1}}, "2:1: unknown key 'dpeth'. Did you mean depth?"),
        ({"iner": {}}, "1:1: unknown key 'iner'. Did you mean inner?"),
        ({"inner": {"depth": "x"}}, "2:1: inner.depth: 'x' is not a whole number"),
        ({"inner": 3}, "1:1: inner: 3 is not a mapping of keys to values"),
        ({"parts": {"a": "x"}}, "2:1: parts: 'x' is not a whole number"),
    ],
)
def test_a_mistake_is_named_with_its_section(values, line):
    with pytest.raises(ValidationError) as caught:
        _Outer.model_validate(values)
    assert mistake_lines(caught.value, lambda one, _: f"{len(one)}:1", _Outer) == [line]


def test_lines_are_in_the_order_of_the_file():
    lines = ["b:2:1: x", "a:10:1: x", "a:9:2: x", "a:9:2: x", "a:9:1: y"]
    assert in_order(lines) == ["a:9:1: y", "a:9:2: x", "a:10:1: x", "b:2:1: x"]
