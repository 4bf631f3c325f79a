"""Plans out of a folder that ``generate`` wrote."""

from __future__ import annotations

import json

import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.operation import operation_name
from gemmetry.domain.specs.generated import (
    FILE_NAME,
    Generated,
    add_generated,
    names_a_problem,
    read_generated,
    wanted_of,
)
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.operations import legacy
from gemmetry.domain.specs.planning import make_plan

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
    assert read_generated(folder) == read_generated(folder / "missing") == ()
    written = [entry(source="b.mlir"), entry(MIXED, ("default", "tile_8"), "cuda-sm_80")]
    add_generated(folder, written)
    assert list(read_generated(folder)) == written
    assert json.loads((folder / FILE_NAME).read_text())["schema_version"] == 1


def test_configurations_of_later_runs_are_added(folder):
    add_generated(folder, [entry(configurations=("default", "a")), entry(MIXED)])
    add_generated(folder, [entry(configurations=("b", "a")), entry(target="cuda-sm_80")])
    assert list(read_generated(folder)) == [
        entry(configurations=("default", "a", "b")), entry(MIXED), entry(target="cuda-sm_80")
    ]  # fmt: skip


def test_what_has_lost_its_source_is_gone(folder):
    add_generated(folder, [entry(), entry(MIXED, source="b.mlir")])
    (folder / "b.mlir").unlink()
    assert list(read_generated(folder)) == [entry()]


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
        ({}, False), ({"dtypes": "f32", "operation_kind": "matmul"}, False),
        ({"dispatches": "matmul_*", "device": "cpu", "seed": 3, "generated_dir": "b"}, False),
        ({"shapes": "8x8x8"}, True), ({"problem_m": 8, "problem_n": 8, "problem_k": 8}, True),
        ({"layouts": "tn"}, True), ({"enable_batch_search": True}, True),
    ],
)  # fmt: skip
def test_which_requests_name_a_problem(values, is_problem):
    assert names_a_problem(make_spec(values)) is is_problem


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, [F32, MIXED, BATCHED]), ({"operation_kind": "all"}, [F32, MIXED, BATCHED]),
        ({"operation_kind": "matmul"}, [F32, MIXED]), ({"dtypes": "f16"}, [MIXED, BATCHED]),
        ({"dtypes": "f16:f16:f16,f32"}, [F32, BATCHED]), ({"dtypes": "f64"}, []),
        ({"dtypes": "f16", "operation_kind": "matmul"}, [MIXED]),
    ],
)  # fmt: skip
def test_kinds_and_formats_choose_among_them(values, wanted):
    found = wanted_of(make_spec(values), [entry(F32), entry(MIXED), entry(BATCHED)])
    assert [one.operation for one in found] == wanted


LEGACY = legacy("iree")

NAME = "matmul_768x512x1024_f16t_f16t_f16t"
OTHER = "matmul_64x64x64_f32t_f32t_f32t"


@pytest.fixture
def write(tmp_path):
    """Lists dispatches in the folder: target -> provider -> operation -> configurations."""
    (tmp_path / "source").write_text("")

    def add(target, provider="iree", **operations):
        named = ((parse_operation(name), tuple(found)) for name, found in operations.items())
        add_generated(tmp_path, [Generated(provider, target, *one, "source") for one in named])
        return tmp_path

    return add


def planned(catalogue, folder, defaults=None, **values):
    return make_plan(make_spec(values), catalogue, defaults=defaults, generated=folder)


def named(found):
    return [(n.provider, n.target, operation_name(n.operation), n.configuration)
            for n in found.plan.named]  # fmt: skip


def names_of_targets(found):
    return [target.name for target in found.plan.targets]


def test_compiling_takes_the_folders_dispatches_for_their_targets(laptop, write):
    write("cuda-sm_80", **{NAME: ["default", "tile_a"]})
    found = planned(laptop, write("cpu", **{OTHER: ["default"]}), LEGACY)
    assert names_of_targets(found) == ["cuda-sm_80", "cpu"]
    assert [request.name for request in found.plan.providers] == ["iree"]
    assert named(found) == [
        ("iree", "cuda-sm_80", NAME, "default"),
        ("iree", "cuda-sm_80", NAME, "tile_a"),
        ("iree", "cpu", OTHER, "default"),
    ]
    assert list(found.plan.operations) == []


def test_profiling_takes_what_was_written_for_the_device_here(laptop, gpu_machine, write):
    write("cuda-sm_80", "triton", **{NAME: ["tile_a", "tile_b"]})
    folder = write("cpu", **{OTHER: ["default"]})
    found = planned(laptop, folder, providers="iree")
    assert named(found) == [("iree", "cpu", OTHER, "default")]
    found = planned(gpu_machine, folder, dispatches="*tile_b", device="cuda", providers="triton")
    assert named(found) == [("triton", "cuda-sm_90", NAME, "tile_b")]


def test_the_architecture_itself_comes_before_others_of_its_kind(gpu_machine, write):
    write("cuda-sm_80", "triton", **{NAME: ["old"]})
    folder = write("cuda-sm_90", "triton", **{NAME: ["new"]})
    assert named(planned(gpu_machine, folder)) == [("triton", "cuda-sm_90", NAME, "new")]


def test_a_device_of_another_kind_gets_the_operations(laptop, write):
    folder = write("cuda-sm_80", **{NAME: ["default", "tile_a"], OTHER: ["default"]})
    found = planned(laptop, folder, dispatches="matmul_768x512x1024_*")
    assert (names_of_targets(found), named(found)) == (["cpu"], [])
    assert [operation_name(operation) for operation in found.plan.operations] == [NAME, OTHER]
    for name in (NAME, OTHER):
        is_selected = found.plan.selection.matches("iree", f"{name}_any", parse_operation(name))
        assert is_selected == (name == NAME)
    assert any("generated for cuda-sm_80" in note for note in found.notes)
    assert found.notes[-1].endswith("; code compiled for cuda-sm_80 is not used")


def test_code_for_another_kind_of_device_is_not_used(laptop, gpu_machine, write):
    """That of another architecture may be: IREE's for sm_80 serves an sm_90 device."""
    folder = write("cuda-sm_80", "triton", **{NAME: ["a"]})
    note = planned(gpu_machine, folder, providers="triton", device="cuda").notes[-1]
    assert note.endswith("generated for cuda-sm_80")
    folder = write("cpu", **{OTHER: ["default"]})
    note = planned(laptop, folder, providers="iree").notes[-1]
    assert note.endswith("generated for cuda-sm_80, cpu; code compiled for cuda-sm_80 is not used")


def test_others_take_the_operations_and_the_folders_provider_its_dispatches(laptop, write):
    found = planned(laptop, write("cpu", **{NAME: ["tile_a"]}), providers="iree,torch")
    operation = parse_operation(NAME)
    assert named(found) == [("iree", "cpu", NAME, "tile_a")]
    assert list(found.plan.operations) == [operation]
    assert found.plan.selection.matches("torch", f"{NAME}_default", operation)
    assert not found.plan.selection.matches("iree", f"{NAME}_default", operation)


def test_a_name_in_full_is_made_although_the_folder_lacks_it(laptop, write):
    folder = write("cpu", **{NAME: ["default"]})
    found = planned(laptop, folder, dispatches=f"{NAME}_tile_x,{OTHER}_default")
    made = [(None, None, NAME, "tile_x"), (None, None, OTHER, "default")]
    assert [(None, *one[1:]) for one in named(found)] == made


def test_only_the_default_configuration_on_request(laptop, write):
    folder = write("cpu", **{NAME: ["default", "tile_a"]})
    found = planned(laptop, folder, default_config=True)
    assert named(found) == [("iree", "cpu", NAME, "default")]


def test_another_content_is_another_plan_unless_the_request_has_a_problem(laptop, write):
    folder = write("cpu", **{NAME: ["default"]})
    before = planned(laptop, folder).plan.hash
    assert planned(laptop, folder).plan.hash == before
    write("cpu", **{NAME: ["tile_a"]})
    assert planned(laptop, folder).plan.hash != before
    found = planned(laptop, folder, shapes="8x8x8")
    assert named(found) == []
    assert found.plan.hash == planned(laptop, None, shapes="8x8x8").plan.hash


@pytest.mark.parametrize("values", [{"dispatches": "matmul_9x9*"}, {"dtypes": "f64"}])
def test_a_selection_of_nothing_names_the_folder_and_the_nearest(laptop, write, values):
    folder = write("cpu", **{NAME: ["default"]})
    with pytest.raises(EmptySelectionError, match="none of the 1 dispatches") as found:
        planned(laptop, folder, **values)
    assert NAME in found.value.hint
    assert str(folder) in found.value.message


def test_devices_of_which_the_folder_knows_one_are_refused(gpu_machine, write):
    folder = write("cpu", "torch", **{NAME: ["default"]})
    with pytest.raises(RequestError, match="of torch for cpu, but none for cuda-sm_90") as found:
        planned(gpu_machine, folder, device="cpu,cuda")
    assert "--device cuda-sm_90" in found.value.hint
