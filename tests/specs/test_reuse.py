"""Plans out of a folder that ``generate`` wrote."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import operation_name
from gemmetry.domain.specs.generated import Generated, add_generated
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.operations import legacy
from gemmetry.domain.specs.planning import make_plan

LEGACY = legacy("iree")

NAME = "matmul_768x512x1024_f16t_f16t_f16t"
OTHER = "matmul_64x64x64_f32t_f32t_f32t"


@pytest.fixture
def write(tmp_path):
    """Lists dispatches in the folder: target -> provider -> operation -> configurations."""
    (tmp_path / "source").write_text("")

    def add(target, provider="iree", **operations):
        add_generated(
            tmp_path,
            [
                Generated(provider, target, parse_operation(name), tuple(configs), "source")
                for name, configs in operations.items()
            ],
        )
        return tmp_path

    return add


def planned(catalogue, folder, defaults=None, **values):
    return make_plan(make_spec(values), catalogue, defaults=defaults, generated=folder)


def named(plan):
    return [(n.provider, n.target, operation_name(n.operation), n.configuration)
            for n in plan.named]  # fmt: skip


def test_compiling_takes_the_folders_dispatches_for_their_targets(laptop, write):
    write("cuda-sm_80", **{NAME: ["default", "tile_a"]})
    folder = write("cpu", **{OTHER: ["default"]})
    plan = planned(laptop, folder, LEGACY).plan
    assert [target.name for target in plan.targets] == ["cuda-sm_80", "cpu"]
    assert [request.name for request in plan.providers] == ["iree"]
    assert named(plan) == [
        ("iree", "cuda-sm_80", NAME, "default"),
        ("iree", "cuda-sm_80", NAME, "tile_a"),
        ("iree", "cpu", OTHER, "default"),
    ]
    assert list(plan.operations) == []


def test_profiling_takes_what_was_written_for_the_device_here(laptop, gpu_machine, write):
    write("cuda-sm_80", "triton", **{NAME: ["tile_a", "tile_b"]})
    folder = write("cpu", **{OTHER: ["default"]})
    plan = planned(laptop, folder, providers="iree").plan
    assert named(plan) == [("iree", "cpu", OTHER, "default")]
    plan = planned(
        gpu_machine, folder, dispatches="*tile_b", device="cuda", providers="triton"
    ).plan
    assert named(plan) == [("triton", "cuda-sm_90", NAME, "tile_b")]


def test_the_architecture_itself_comes_before_others_of_its_kind(gpu_machine, write):
    write("cuda-sm_80", "triton", **{NAME: ["old"]})
    folder = write("cuda-sm_90", "triton", **{NAME: ["new"]})
    assert named(planned(gpu_machine, folder).plan) == [("triton", "cuda-sm_90", NAME, "new")]


def test_a_device_of_another_kind_gets_the_operations(laptop, write):
    folder = write("cuda-sm_80", **{NAME: ["default", "tile_a"], OTHER: ["default"]})
    found = planned(laptop, folder, dispatches="matmul_768x512x1024_*")
    plan = found.plan
    assert [target.name for target in plan.targets] == ["cpu"]
    assert named(plan) == []
    assert [operation_name(operation) for operation in plan.operations] == [NAME, OTHER]
    assert plan.selection.matches("iree", f"{NAME}_any", parse_operation(NAME))
    assert not plan.selection.matches("iree", f"{OTHER}_any", parse_operation(OTHER))
    assert any("generated for cuda-sm_80" in note for note in found.notes)
    assert found.notes[-1].endswith("; code compiled for cuda-sm_80 is not used")


def test_code_for_another_kind_of_device_is_not_used(laptop, gpu_machine, write):
    """That of another architecture may be: IREE's for sm_80 serves an sm_90 device."""
    folder = write("cuda-sm_80", "triton", **{NAME: ["a"]})
    (note,) = planned(gpu_machine, folder, providers="triton", device="cuda").notes[-1:]
    assert note.endswith("generated for cuda-sm_80")
    folder = write("cpu", **{OTHER: ["default"]})
    (note,) = planned(laptop, folder, providers="iree").notes[-1:]
    assert note.endswith("generated for cuda-sm_80, cpu; code compiled for cuda-sm_80 is not used")


def test_others_take_the_operations_and_the_folders_provider_its_dispatches(laptop, write):
    folder = write("cpu", **{NAME: ["tile_a"]})
    plan = planned(laptop, folder, providers="iree,torch").plan
    operation = parse_operation(NAME)
    assert named(plan) == [("iree", "cpu", NAME, "tile_a")]
    assert list(plan.operations) == [operation]
    assert plan.selection.matches("torch", f"{NAME}_default", operation)
    assert not plan.selection.matches("iree", f"{NAME}_default", operation)


def test_a_name_in_full_is_made_although_the_folder_lacks_it(laptop, write):
    folder = write("cpu", **{NAME: ["default"]})
    plan = planned(laptop, folder, dispatches=f"{NAME}_tile_x,{OTHER}_default").plan
    assert [(n.configuration, n.target) for n in plan.named] == [
        ("tile_x", None),
        ("default", None),
    ]


def test_only_the_default_configuration_on_request(laptop, write):
    folder = write("cpu", **{NAME: ["default", "tile_a"]})
    plan = planned(laptop, folder, default_config=True).plan
    assert named(plan) == [("iree", "cpu", NAME, "default")]


def test_a_request_with_a_problem_leaves_the_folder_aside(laptop, write):
    folder = write("cpu", **{NAME: ["default"]})
    plan = planned(laptop, folder, shapes="8x8x8").plan
    assert named(plan) == []
    assert plan.hash == planned(laptop, None, shapes="8x8x8").plan.hash


def test_another_content_is_another_plan(laptop, write):
    folder = write("cpu", **{NAME: ["default"]})
    before = planned(laptop, folder).plan.hash
    assert planned(laptop, folder).plan.hash == before
    write("cpu", **{NAME: ["tile_a"]})
    assert planned(laptop, folder).plan.hash != before


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
