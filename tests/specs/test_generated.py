from __future__ import annotations

import json

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.specs.generated import (
    FILE_NAME,
    Generated,
    add_generated,
    names_a_problem,
    read_generated,
    wanted_of,
)
from gemmetry.domain.specs.loader import make_spec

F32 = parse_operation("matmul_8x16x32_f32t_f32t_f32t")
MIXED = parse_operation("matmul_8x16x32_f16t_f16t_f32t")
BATCHED = parse_operation("batch_matmul_2x8x16x32_f16t_f16t_f16t")


def entry(operation=F32, configurations=("default",), target="cpu", source="a.mlir"):
    return Generated("iree", target, operation, tuple(configurations), source)


@pytest.fixture
def folder(tmp_path):
    for name in ("a.mlir", "b.mlir"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_what_was_written_is_read_again_in_its_order(folder):
    written = [entry(source="b.mlir"), entry(MIXED, ("default", "tile_8"), "cuda-sm_80")]
    add_generated(folder, written)
    assert list(read_generated(folder)) == written
    assert json.loads((folder / FILE_NAME).read_text())["schema_version"] == 1


def test_configurations_of_later_runs_are_added(folder):
    add_generated(folder, [entry(configurations=("default", "a")), entry(MIXED)])
    add_generated(folder, [entry(configurations=("b", "a")), entry(target="cuda-sm_80")])
    found = read_generated(folder)
    assert [(one.target, one.operation, one.configurations) for one in found] == [
        ("cpu", F32, ("default", "a", "b")),
        ("cpu", MIXED, ("default",)),
        ("cuda-sm_80", F32, ("default",)),
    ]


def test_what_has_lost_its_source_is_gone(folder):
    add_generated(folder, [entry(), entry(MIXED, source="b.mlir")])
    (folder / "b.mlir").unlink()
    assert [one.operation for one in read_generated(folder)] == [F32]


def test_a_folder_without_a_list_holds_nothing(tmp_path):
    assert read_generated(tmp_path) == ()
    assert read_generated(tmp_path / "missing") == ()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"dispatches": [{}]}', '{"dispatches": 3}',
     '{"dispatches": [{"provider": "iree", "target": "moon", "operation": "x",'
     ' "configurations": [], "source": "a"}]}'],
)  # fmt: skip
def test_a_damaged_list_is_reported_with_its_path(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(RequestError, match=FILE_NAME) as found:
        read_generated(tmp_path)
    assert "gemmetry generate" in found.value.hint


@pytest.mark.parametrize(
    ("values", "is_problem"),
    [
        ({}, False),
        ({"dispatches": "matmul_*", "device": "cpu", "seed": 3, "generated_dir": "b"}, False),
        ({"dtypes": "f32", "operation_kind": "matmul"}, False),
        ({"shapes": "8x8x8"}, True),
        ({"problem_m": 8, "problem_n": 8, "problem_k": 8}, True),
        ({"layouts": "tn"}, True),
        ({"enable_batch_search": True}, True),
    ],
)
def test_which_requests_name_a_problem(values, is_problem):
    assert names_a_problem(make_spec(values)) is is_problem


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, [F32, MIXED, BATCHED]),
        ({"operation_kind": "all"}, [F32, MIXED, BATCHED]),
        ({"operation_kind": "matmul"}, [F32, MIXED]),
        ({"dtypes": "f16"}, [MIXED, BATCHED]),
        ({"dtypes": "f16:f16:f16,f32"}, [F32, BATCHED]),
        ({"dtypes": "f16", "operation_kind": "matmul"}, [MIXED]),
        ({"dtypes": "f64"}, []),
    ],
)
def test_kinds_and_formats_choose_among_them(values, wanted):
    found = wanted_of(make_spec(values), [entry(F32), entry(MIXED), entry(BATCHED)])
    assert [one.operation for one in found] == wanted
