"""Tables survive being written and read, and damaged ones are refused with what to do."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, parse_operation
from gemmetry.domain.errors import StorageError
from gemmetry.tuning.dispatcher.table import (
    MatmulProblem,
    TableError,
    _checksum,
    operation_of,
    problem_of,
    read_table,
    shipped_table,
    tail_class,
    write_table,
)

from .conftest import entry, table_of

PATH = Path("folder", "table.json")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PATH.parent.mkdir()
    return table_of(entry(16, 128, 256, cublas=10.0, a=8.0), versions={"torch": "2.13.0"})


def damaged(table, change):
    """The text of a table that `change` edits without its checksum noticing."""
    content = table.document()
    del content["sha256"]
    change(content)
    return json.dumps({**content, "sha256": _checksum(content)})


def set_entry(**fields):
    return lambda content: content["entries"][0].update(fields)


def set_time(ns):
    return lambda content: content["entries"][0]["times_ns"].update({"blocked:a": ns})


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (set_time(0), "not positive"), (set_time("fast"), "float"),
        (set_entry(choice="blocked:z"), "without a time"), (set_entry(shape=[1, 2]), "3"),
        (set_entry(shape=[0, 2, 2]), "m=0"), (set_entry(signature="bf17t"), "bf17t"),
        (lambda c: c.update(entries=None), "entries"), (lambda c: c.pop("target"), "target"),
        (lambda c: c.update(version=99), "version 99"),
        *((text, None) for text in ("", "{", "[]", "null", "\0", '{"version": 1}', "NaN")),
    ],
)  # fmt: skip
def test_what_no_table_contains_is_refused(table, change, cause):
    PATH.write_text(change if isinstance(change, str) else damaged(table, change))
    with pytest.raises(TableError, match=cause) as caught:
        read_table(PATH)
    assert str(PATH) in caught.value.message
    assert "gemmetry dispatcher build" in caught.value.hint


def test_every_changed_byte_is_noticed(table):
    write_table(table, PATH)
    assert read_table(PATH) == table
    data = PATH.read_bytes()
    for place in range(0, len(data), 37):
        PATH.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with suppress(TableError):
            assert read_table(PATH) == table, f"byte {place}"


def test_a_missing_file_and_one_that_cannot_be_written(table):
    with pytest.raises(TableError, match=str(PATH)):
        read_table(PATH)
    PATH.parent.rmdir()
    PATH.parent.write_text("")
    with pytest.raises(StorageError, match="cannot write the table"):
        write_table(table, PATH)


def test_a_table_for_the_h200_comes_with_the_package():
    found = shipped_table("NVIDIA H200")
    assert (found.target, found.device) == ("cuda-sm_90", "NVIDIA H200")
    verified = set(found.certified)
    for one in found.entries:
        assert one.choice == "torch:default" or (one.signature, one.choice) in verified
    assert shipped_table("NVIDIA H300") is None


NAME = "matmul_17x256x64_bf16t_bf16n_f32t_alpha2_bias_relu"


def test_a_problem_is_its_operation_and_back():
    problem = problem_of(parse_operation(NAME))
    assert problem == MatmulProblem("bf16t_bf16n_f32t_alpha2_bias_relu", 17, 256, 64)
    assert problem.name == NAME
    assert operation_of(problem) == parse_operation(NAME)


def test_rows_fall_into_buckets_and_distances_are_octaves():
    buckets = {1: 1, 2: 2, 3: 4, 9: 16, 128: 128, 129: 256, 257: 512}
    assert {m: MatmulProblem("x", m, 1, 1).row_bucket for m in buckets} == buckets
    small, large = MatmulProblem("x", 8, 64, 64), MatmulProblem("x", 64, 64, 1024)
    assert small.distance(large) == pytest.approx(5)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((128, 64, 64), "whole"), ((127, 64, 64), "m"), ((1, 65, 63), "mnk"), ((128, 32, 64), "n")],
)
def test_classes_of_tails(shape, wanted):
    tile = Configuration("a", {"tile_m": 128, "tile_n": 64, "tile_k": 32})
    assert tail_class(MatmulProblem("x", *shape), tile) == wanted
