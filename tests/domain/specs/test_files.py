from __future__ import annotations

import errno
import io
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.domain.opening import MOST_TEXT_BYTES, read_text_file
from gemmetry.domain.specs import yaml_text
from gemmetry.domain.specs.yaml_text import read_yaml


def test_reads_a_file_and_where_it_may_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfeins \xc3\xa4")
    assert read_text_file(path, "the file", hint="") == "eins ä"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"zwei")))
    assert read_text_file(Path("-"), "the file", hint="", standard_input=True) == "zwei"
    with pytest.raises(RequestError, match="the file - does not exist"):
        read_text_file(Path("-"), "the file", hint="")


def test_every_cause_has_its_words(tmp_path, monkeypatch):
    """An error names the file, the cause and the next step; none shows an error number."""
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"ab\xff\xfe")
    Path("folder").mkdir()
    Path("secret").write_text("x")
    Path("large").write_bytes(bytes(MOST_TEXT_BYTES + 1))
    for name, cause in {
        "none": "does not exist", "secret/none": "does not exist", "binary": "byte 3",
        "folder": "not a file", "x" * 400: os.strerror(errno.ENAMETOOLONG), "large": "4 MiB",
        "secret": "permission",
    }.items():  # fmt: skip
        if name == "secret":
            refusal = PermissionError(13, "Permission denied")
            monkeypatch.setattr(Path, "open", Mock(side_effect=refusal))
        with pytest.raises(RequestError, match=f"the file {name}.*{cause}") as caught:
            read_text_file(Path(name), "the file", hint="Do this.")
        assert caught.value.hint == "Do this."
        assert "Errno" not in caught.value.message and "codec" not in caught.value.message


def test_a_pipe_is_read_to_its_end_and_waits_for_nobody(tmp_path):
    """Shells pass what a program prints as a pipe: ``--spec <(program)``."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert read_text_file(pipe, "the file", hint="") == ""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.close(reader)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(read_text_file, pipe, "the file", hint="")
        time.sleep(0.1)
        for part in (b"a: ", b"1"):
            os.write(writer, part)
        os.close(writer)
        assert found.result(10) == "a: 1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in ("no", "on", "12:30", "64:1024:128", "2024-01-01")),
        *((text, float(text)) for text in ("1e5", "1.5", ".5")),
        *((text, int(text, 0)) for text in ("0o17", "0x10", "-3")),
        ("010", 10), ("true", True), ("False", False), ("null", None), ("~", None),
        ("[1, a]", [1, "a"]), ("", {}),
    ],
)  # fmt: skip
def test_scalars(text, value):
    read = read_yaml(text, "f").value
    assert (read, type(read)) == (value, type(value))


def test_places_of_keys_and_values():
    document = read_yaml("a: 1\nb:\n  - x\n  - y: 2\n", "f.yaml")
    assert document.value == {"a": 1, "b": ["x", {"y": 2}]}
    assert document.place(("a",), of_key=True) == "f.yaml:1:1"
    for path, place in {
        ("a",): "1:4", ("b", 1, "y"): "4:8", ("b", 0, "deeper"): "3:5", ("missing",): "1:1"
    }.items():  # fmt: skip
        assert document.place(path) == f"f.yaml:{place}"


def test_a_repeated_key_is_reported():
    document = read_yaml("seed: 1\nSEED: 2\n", "f.yaml", str.lower)
    assert document.mistakes == [
        "f.yaml:2:1: the key 'SEED' (or seed) appears twice; it is first at 1:1"
    ]
    assert document.value == {"seed": 1}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        *((text, ": not YAML") for text in ("a: [1", "a:\n\t- b", "a: 'x", "*no", "a: b: c", "\0")),
        ("!!python/object/apply:os.getcwd []", ""),  # Tags cannot make objects.
        ("!!python/name:os.x ''", ""),
    ],
)
def test_what_is_not_yaml_is_reported_with_its_place(text, cause):
    with pytest.raises(SpecError, match=rf"f\.yaml:\d+:\d+{cause}"):
        read_yaml(text, "f.yaml")


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


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_any_text_reads_or_is_our_error(text):
    try:
        read_yaml(text, "f.yaml")
    except SpecError as error:
        assert error.mistakes
