from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation, split_dispatch_name
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.specs.selection import (
    PatternSelection,
    is_regex_by_its_look,
    named_dispatch,
    parse_pattern,
    pattern_operation,
    split_patterns,
)

NAME = "matmul_3456x1024x2048_f16t_f16t_f32t_tile_config_128x128_32x5_tensorcore_mmasync"
OPERATION = split_dispatch_name(NAME)[0]
PROVIDERS = ["iree", "torch"]


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("a,b", ["a", "b"]), (" a , b ,", ["a", "b"]), ("{a,b}c,d", ["{a,b}c", "d"]),
        ("re:(a,b),c", ["re:(a,b)", "c"]), ("x[1,2],y", ["x[1,2]", "y"]),
        ("a[,b", ["a[", "b"]), ("", []),
    ],
)  # fmt: skip
def test_commas_inside_brackets_belong_to_the_pattern(text, patterns):
    assert split_patterns(text) == patterns


@pytest.mark.parametrize(
    "pattern",
    [NAME, f"iree:{NAME}", "matmul_3456x1024x2048_f16t_f16t_f32t_*_tensorcore_mmasync", "*iree*",
     "ir*tile_config_128x128_32x5*", "*_{32x5,64x4}_*", "matmul_[0-9]*", "re:32x5_tensor",
     "re:^iree:", "kind=matmul", "m=3456", "m=3328:4096:128", "n={512,1024}", "dtype=f16",
     "rhs_dtype={bf16,f16}", "layouts=t*", "provider=i*", "configuration=tile_config_128x128_*",
     "epilogue=none", "operation=matmul_3456x1024x2048_f16t_f16t_f32t", "split_k_slices=1",
     "not tensorcore", "not matmul_*_f32t", "not torch:*", "not re:^matmul", "not kind=conv2d",
     "not m=128", "not dtype=f32", "not accumulator=f16", f"not {NAME.upper()}"],
)  # fmt: skip
def test_matches(pattern):
    matches = parse_pattern(pattern.removeprefix("not ")).matches("iree", NAME, OPERATION)
    assert matches is not pattern.startswith("not ")


@pytest.mark.parametrize(
    ("pattern", "error", "cause"),
    [("gflop=3", UnknownNameError, "gflop"), ("re:(", RequestError, "regular expression"),
     ("{a,b}" * 12, RequestError, "alternatives"), ("matmul_(f32", RequestError, "invalid")],
)  # fmt: skip
def test_an_unknown_key_and_bad_expressions_are_reported(pattern, error, cause):
    with pytest.raises(error, match=cause) as found:
        parse_pattern(pattern)
    assert ("In a glob" in found.value.hint) == (pattern == "matmul_(f32")


def _selection(include=(), exclude=()):
    lists = ([p for text in texts for p in split_patterns(text)] for texts in (include, exclude))
    return PatternSelection(*(tuple(map(parse_pattern, patterns)) for patterns in lists))


def test_exclude_wins_and_nothing_selects_everything():
    selection = _selection(["*mmasync"], ["m=3456,torch:*"])
    assert _selection().everything and not selection.everything
    assert not selection.matches("iree", NAME, OPERATION)
    assert _selection([], ["torch:*"]).matches("iree", NAME, OPERATION)


def test_patterns_that_selected_nothing_are_known():
    selection = _selection(["*mmasync,matmul_*,foo*"])
    assert selection.idle_patterns() == []
    for _ in range(2):
        assert selection.matches("iree", NAME, OPERATION)
    assert selection.idle_patterns() == ["foo*"]
    listed = PatternSelection(configurations={"iree": ("*mmasync", "mistyped")})
    assert listed.matches("iree", NAME, OPERATION)
    assert listed.idle_patterns() == ["iree:mistyped"]


def test_document_holds_what_was_written():
    document = _selection(["a*,kind=matmul"], ["re:b"]).document()
    assert document == {"include": ["a*", "kind=matmul"], "exclude": ["re:b"], "configurations": {}}


@pytest.mark.parametrize("provider", ["iree", None])
def test_a_full_name_is_a_dispatch(provider):
    named = named_dispatch(f"{provider}:{NAME}" if provider else NAME, PROVIDERS)
    assert (named.provider, named.operation) == (provider, OPERATION)
    assert named.configuration == "tile_config_128x128_32x5_tensorcore_mmasync"


@pytest.mark.parametrize(
    "pattern", [f"{NAME}$", "re:x", "m=3", "matmul_1x2x3_f16t_f16t_f32t", "*mma*", "foo"]
)
def test_patterns_and_operations_are_not_dispatches(pattern):
    assert named_dispatch(pattern, PROVIDERS) is None


def test_a_misspelt_name_is_explained():
    with pytest.raises(RequestError, match="f61t"):
        named_dispatch("matmul_1x2x3_f61t_f16t_f32t_default", PROVIDERS)
    with pytest.raises(UnknownNameError, match="tourch"):
        named_dispatch(f"tourch:{NAME}", PROVIDERS)


OPERATION_NAME = "matmul_1x2x3_f16t_f16t_f32t"


@pytest.mark.parametrize("end", ["_*", "", "_tile*", "_(default|tile.*)", "_.*"])
@pytest.mark.parametrize(("start", "step"), [("", ""), ("iree:", "_bias")])
def test_a_pattern_contains_its_operation(start, step, end):
    operation = f"{OPERATION_NAME}{step}"
    found = pattern_operation(f"{start}{operation}{end}", PROVIDERS)
    assert found == parse_operation(operation)


@pytest.mark.parametrize("pattern", ["*", "matmul_*_f16t", "re:matmul", "m=3", "matmul_1x2x3_f1*",
                                     "matmul_.*_f32t_.*", f"{OPERATION}*"])  # fmt: skip
def test_open_patterns_contain_no_operation(pattern):
    assert pattern_operation(pattern, PROVIDERS) is None


@settings(max_examples=300)
@given(st.text("abm=,:*?[]{}re_f16tx123", max_size=24))
def test_any_text_selects_or_is_our_error(text):
    try:
        selection = _selection([text], [])
    except RequestError:
        return
    assert selection.matches("iree", NAME, OPERATION) in (True, False)


@settings(max_examples=100)
@given(st.lists(st.text("abc*_", min_size=1, max_size=5), max_size=5))
def test_splitting_undoes_joining(patterns):
    assert split_patterns(",".join(patterns)) == patterns


@pytest.mark.parametrize(
    "pattern",
    ["matmul_.*_f16t_.*", "matmul_[0-9]+x1024x.*_mmasync$", "^matmul_3456x",
     "(matmul|conv2d)_.*", r"iree:matmul_\d+x.*", "tile_config_(128|256)x.*"],
)  # fmt: skip
def test_what_can_only_be_a_regular_expression_is_one(pattern):
    assert is_regex_by_its_look(pattern)
    assert parse_pattern(pattern).matches("iree", NAME, OPERATION)
    assert not parse_pattern(pattern).matches("torch", "conv_default", OPERATION)


@pytest.mark.parametrize(
    "pattern",
    ["matmul_*", "matmul_[0-9.]*", "m={64,128}", "re:matmul_.*", "operation=matmul_.*", NAME,
     "{iree,torch}:matmul_?4*"],
)  # fmt: skip
def test_what_may_be_a_glob_is_none(pattern):
    assert not is_regex_by_its_look(pattern)
