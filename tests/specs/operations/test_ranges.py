from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.specs.keys import split_files
from gemmetry.domain.specs.shapes import parse_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256", (256,)),
        (256, (256,)),
        ("64:1024:128", (64, 192, 320, 448, 576, 704, 832, 960)),
        ("64:192:128", (64,)),
        ("3:6", (3, 4, 5)),
        ("log2:64:1024", (64, 128, 256, 512, 1024)),
        ("LOG2:3:13", (3, 6, 12)),
        ("log2:7:7", (7,)),
        ("64,128:384:128, 64", (64, 128, 256)),
        ("64 128", (64, 128)),
        ([64, "log2:128:256"], (64, 128, 256)),
    ],
)
def test_reads_sizes(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", ",", "64:64:1", "128:64:8", "log2:64:32", []])
def test_nothing_is_an_error(text):
    with pytest.raises(EmptySelectionError):
        parse_sizes(text)


@pytest.mark.parametrize(
    "text",
    ["0", "-4", 0, -1, "0:8:2", "8:64:0", "8:64:-8", "a", "1:2:3:4", "log2:0:8", "log3:1:8", "1e3",
     "1.5", "64:", ":64", "log2:64", "9" * 13, "1:999999999999:1", "²"],
)  # fmt: skip
def test_refuses(text):
    with pytest.raises(RequestError):
        parse_sizes(text)


def test_error_names_the_item_and_the_cause():
    with pytest.raises(RequestError, match=r"step 0") as caught:
        parse_sizes("64, 8:64:0")
    assert "'8:64:0'" in caught.value.message
    assert caught.value.hint


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 500))
def test_ranges_agree_with_python(start, stop, step):
    expected = tuple(range(start, stop, step))
    if expected:
        assert parse_sizes(f"{start}:{stop}:{step}") == expected
    else:
        with pytest.raises(EmptySelectionError):
            parse_sizes(f"{start}:{stop}:{step}")


@settings(deadline=None, max_examples=300)
@given(st.text("0123456789:,- log2", max_size=12))
def test_any_text_gives_positive_sizes_or_our_error(text):
    try:
        sizes = parse_sizes(text)
    except RequestError:
        return
    assert sizes
    assert min(sizes) >= 1
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("a.csv", ["a.csv"]),
        ("a.csv,b.json", ["a.csv", "b.json"]),
        ("out/a.csv, b.xlsx,c.md", ["out/a.csv", "b.xlsx", "c.md"]),
        ("a,b.csv", ["a,b.csv"]),
        ("folder", ["folder"]),
        ("run 1,5.csv", ["run 1,5.csv"]),
    ],
)
def test_commas_divide_files_that_all_have_suffixes(text, files):
    assert split_files(text) == files
