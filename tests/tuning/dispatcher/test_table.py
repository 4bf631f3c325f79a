"""Tables survive being written and read, and damaged ones are refused with what to do."""

from __future__ import annotations

import json
import re

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


@pytest.fixture
def table():
    return table_of(entry(16, 128, 256, cublas=10.0, a=8.0), versions={"torch": "2.13.0"})


def damaged(table, change):
    """The text of a table that `change` edits without its checksum noticing."""
    content = table.document()
    del content["sha256"]
    change(content)
    return json.dumps({**content, "sha256": _checksum(content)})


def set_time(ns):
    return lambda content: content["entries"][0]["times_ns"].update({"blocked:a": ns})


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (set_time(0), "not positive"),
        (set_time("fast"), "float"),
        (lambda c: c["entries"][0].update(choice="blocked:z"), "without a time"),
        (lambda c: c["entries"][0].update(shape=[1, 2]), "3"),
        (lambda c: c["entries"][0].update(shape=[0, 2, 2]), "m=0"),
        (lambda c: c["entries"][0].update(signature="bf17t"), "bf17t"),
        (lambda c: c.update(entries=None), "entries"),
        (lambda c: c.pop("target"), "target"),
        (lambda c: c.update(version=99), "version 99"),
    ],
)
def test_values_that_no_measurement_gives_are_refused(tmp_path, table, change, cause):
    path = tmp_path / "table.json"
    path.write_text(damaged(table, change))
    with pytest.raises(TableError, match=cause) as caught:
        read_table(path)
    assert str(path) in caught.value.message
    assert "gemmetry dispatcher build" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", '{"version": 1}', "NaN"])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(TableError):
        read_table(path)


def test_every_changed_byte_is_noticed(tmp_path, table):
    path = tmp_path / "folder" / "table.json"
    write_table(table, path)
    assert read_table(path) == table
    data = path.read_bytes()
    for place in range(0, len(data), 37):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            assert read_table(path) == table, f"byte {place}"
        except TableError:
            continue


def test_a_missing_file_and_one_that_cannot_be_written(tmp_path, table):
    with pytest.raises(TableError, match=re.escape(str(tmp_path / "none.json"))):
        read_table(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write the table"):
        write_table(table, tmp_path / "file" / "table.json")


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
    rows = [MatmulProblem("x", m, 1, 1).row_bucket for m in (1, 2, 3, 9, 128, 129, 257)]
    assert rows == [1, 2, 4, 16, 128, 256, 512]
    small, large = MatmulProblem("x", 8, 64, 64), MatmulProblem("x", 64, 64, 1024)
    assert small.distance(large) == pytest.approx(5)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((128, 64, 64), "whole"), ((127, 64, 64), "m"), ((1, 65, 63), "mnk"), ((128, 32, 64), "n")],
)
def test_classes_of_tails(shape, wanted):
    tile = Configuration("a", {"tile_m": 128, "tile_n": 64, "tile_k": 32})
    assert tail_class(MatmulProblem("x", *shape), tile) == wanted
