from __future__ import annotations

import json

import pytest

from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import RequestError, Stage, UnknownNameError
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.operations import legacy
from gemmetry.domain.specs.planning import make_plan

LEGACY = legacy("iree")

NAME = "matmul_3456x1024x2048_f16t_f16t_f16t_tile_config_128x128_32x5_tensorcore_mmasync"


def plan_of(catalogue, defaults=None, base=None, **values):
    given = {} if base is None else {"base": base}
    return make_plan(make_spec(values), catalogue, defaults=defaults, **given).plan


def names(plan):
    return [target.name for target in plan.targets]


def providers(plan):
    return [request.name for request in plan.providers]


def test_a_first_run_takes_what_works_on_the_cpu(laptop):
    planned = make_plan(make_spec({}), laptop)
    assert (names(planned.plan), len(planned.notes)) == (["cpu"], 2)
    assert providers(planned.plan) == ["iree", "numpy", "torch"]
    assert planned.plan.selection is None


def test_a_gpu_is_preferred_where_there_is_one(gpu_machine):
    plan = plan_of(gpu_machine)
    assert (plan.targets[0].device, names(plan)[0]) == ("cuda:0", "cuda-sm_90")
    assert providers(plan) == ["torch", "triton"]
    assert str(next(iter(plan.operations))).endswith("bf16t_bf16t_bf16t")


def test_devices_are_found_by_name(gpu_machine):
    plan = plan_of(gpu_machine, device="cuda:1,cpu")
    assert [target.device for target in plan.targets] == ["cuda:1", "cpu"]
    with pytest.raises(RequestError, match="cuda:7") as caught:
        plan_of(gpu_machine, device="cuda:7")
    assert "cuda:1" in caught.value.hint


def test_an_architecture_needs_no_device(laptop):
    for values in ({"device": "cuda-sm_80"}, {"device": "cuda", "cuda_arch": "sm_80"},
                   {"cuda_arch": "sm_80"}):  # fmt: skip
        plan = plan_of(laptop, **values)
        assert (names(plan), plan.targets[0].index) == (["cuda-sm_80"], None)
        assert providers(plan) == ["iree", "triton"]
    assert names(plan_of(laptop, LEGACY, device="cuda")) == ["cuda-sm_80"]
    with pytest.raises(RequestError, match="no device vulkan:0"):
        plan_of(laptop, LEGACY, device="vulkan")


def test_an_architecture_on_a_machine_with_a_gpu(gpu_machine):
    planned = make_plan(make_spec({"device": "cuda", "cuda_arch": "sm_80"}), gpu_machine)
    assert planned.plan.targets[0].device == "cuda:0"
    assert "cuda_arch sm_80" in planned.notes[0]
    assert names(plan_of(gpu_machine, LEGACY, cuda_arch="sm_86")) == ["cuda-sm_86"]


def test_options_of_a_provider_come_from_keys_too(laptop):
    plan = plan_of(laptop, iree_bin_dir="tools", providers="iree,torch", device="cpu")
    assert [dict(request.options) for request in plan.providers] == [{"iree_bin_dir": "tools"}, {}]


def test_the_legacy_defaults(laptop):
    plan = plan_of(laptop, LEGACY)
    assert (providers(plan), names(plan)) == (["iree"], ["cuda-sm_80"])
    operation = next(iter(plan.operations))
    assert plan.selection.matches("iree", NAME, operation) is False  # another operation's name
    for values in ({"shapes": "64x64x64"}, {"default_config": True},
                   {"providers": "numpy", "device": "cpu"}):  # fmt: skip
        assert plan_of(laptop, LEGACY, **values).selection is None


NUMPY_OR_ONE = ["numpy", {"name": "torch", "configurations": ["default"]}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"numpy", "torch"}), ({"exclude": "torch:*"}, {"numpy", "torch"}),
        ({"providers": NUMPY_OR_ONE}, {"numpy"}), ({"configurations": "all"}, set()),
        ({"dispatches": "*_default"}, set()), ({"default_config": True}, set()),
        ({"profiling_enabled": False}, set()),
    ],
)  # fmt: skip
def test_configurations_are_few_unless_some_are_requested(laptop, given, expected):
    plan = plan_of(laptop, **{"providers": "numpy,torch", "device": "cpu", **given})
    assert plan.proposed_only == expected


@pytest.mark.parametrize("device", ["cpu", "cuda-sm_80,cpu", "cuda-sm_80"])
def test_the_legacy_set_takes_each_targets_own_configurations(laptop, device):
    plan = plan_of(laptop, LEGACY, device=device, providers="iree")
    assert len(list(plan.operations)) == 17
    assert (plan.selection is None) == (device != "cuda-sm_80")


def test_a_name_in_full_is_made_whatever_the_axes_say(laptop):
    plan = plan_of(laptop, dispatches=NAME)
    (operation,), (dispatch,) = plan.operations, plan.named
    assert f"{operation}_{dispatch.configuration}" == NAME
    both = plan_of(laptop, dispatches=f"iree:{NAME},*f32*", shapes="2x2x2")
    assert (len(list(both.operations)), both.named[0].provider) == (2, "iree")


@pytest.mark.parametrize(
    ("glob", "count"), [("matmul_3456x1024x2048_f16t_f16t_f16t_*_mmasync", 1), ("*default", 3)]
)
def test_a_glob_makes_its_operation(laptop, glob, count):
    plan = plan_of(laptop, dispatches=glob)
    assert (len(list(plan.operations)), plan.named) == (count, ())


def test_configurations_of_a_provider_are_a_filter_or_keyword_values(laptop, tmp_path):
    (tmp_path / "my.py").write_text("def f(a, b): ...\n")
    configured = [
        {"name": "torch", "configurations": ["def*"]},
        {"name": "user", "configurations": [{"block": 64}]},
    ]
    plan = plan_of(laptop, base=tmp_path, shapes="2x2x2", kernel="my.py:f", providers=configured)
    (operation,) = plan.operations
    for provider, name, is_selected in (
        ("torch", "default", True), ("torch", "other", False), ("user", "other", True),
    ):  # fmt: skip
        found = plan.selection.matches(provider, f"{operation}_{name}", operation)
        assert found == is_selected
    expected = {"kernel": f"{tmp_path / 'my.py'}:f", "configurations": [{"block": 64}]}
    assert plan.providers[-1].options == expected


def kernel_of(plan):
    (user,) = [one for one in plan.providers if one.name == "user"]
    return user.options["kernel"]


def test_an_edited_kernel_is_another_plan(laptop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = tmp_path / "my.py"
    kernel.write_text("def f(a, b): return a @ b\n")
    first = plan_of(laptop, kernel="my.py:f")
    assert providers(first) == ["user", "torch"]
    assert plan_of(laptop, kernel="my.py:f").hash == first.hash
    kernel.write_text("def f(a, b): return b @ a\n")
    assert plan_of(laptop, kernel="my.py:f").hash != first.hash


def test_a_file_with_a_manifest_or_a_folder_may_stand_alone(laptop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    binary = tmp_path / "kernels" / "k.cubin"
    binary.parent.mkdir()
    binary.write_bytes(b"1")
    for given in ("kernels", "kernels/k.cubin"):
        first = plan_of(laptop, kernel=given)
        assert kernel_of(first) == str(tmp_path / given)
        binary.write_bytes(first.hash.encode())
        assert plan_of(laptop, kernel=given).hash != first.hash


def test_kernel_paths_may_hold_spaces_and_commas(laptop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = []
    for name in ("we ird", "a,b"):
        paths.append(f"{tmp_path / name / 'k.py'}:f")
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.py").write_text("def f(a, b): return a @ b\n")
    assert kernel_of(plan_of(laptop, kernel="we ird/k.py:f")) == paths[0]
    for given in (["we ird/k.py:f", "a,b/k.py:f"], "we ird/k.py:f, a,b/k.py:f"):
        assert kernel_of(plan_of(laptop, kernel=given)) == paths


@pytest.mark.parametrize("kernel", ["my.py", "missing.py:f", ":f"])
def test_a_kernel_that_is_not_there_is_reported(laptop, kernel):
    with pytest.raises(RequestError):
        plan_of(laptop, kernel=kernel)


def test_providers_that_do_not_work_or_are_unknown_are_reported(laptop, without_torch):
    with pytest.raises(RequestError, match="torch does not work here: its library"):
        plan_of(without_torch, providers="torch", device="cpu")
    assert providers(plan_of(without_torch)) == ["numpy"]
    with pytest.raises(UnknownNameError, match="tourch"):
        plan_of(laptop, dispatches=f"tourch:{NAME}")


def test_settings(laptop):
    settings = plan_of(
        laptop, warmup_iterations=2, wait_steps=1, active_steps=4, repeat_count=5, jobs=-1,
        verification_enabled=False, deadlines={"compile": "1min"}, tags="a:1",
    ).settings  # fmt: skip
    expected = {"warmup_iterations": 3, "launches_per_sample": 4, "repetitions": 5,
                "verify": False, "jobs": 0, "tags": {"a": "1"}}  # fmt: skip
    assert {name: getattr(settings, name) for name in expected} == expected
    assert (settings.deadlines_s[Stage.COMPILE], settings.deadlines_s[Stage.BUILD]) == (60, 120)


def test_the_least_number_of_samples_is_promised_only_where_it_was_requested(laptop):
    """Its default stays what it was in plans of earlier experiments, which can be resumed."""
    usual = plan_of(laptop)
    assert usual.settings.min_samples is None
    assert usual.document["settings"]["min_samples"] == 10
    requested = plan_of(laptop, min_samples=7)
    assert requested.settings.min_samples == requested.document["settings"]["min_samples"] == 7


def test_the_hash_is_of_what_changes_results(laptop):
    one = plan_of(laptop)
    assert json.loads(json.dumps(one.document)) == one.document
    same = plan_of(laptop, jobs=3, output="a.csv", force_compile=True, save_cmds=True)
    assert same.hash == one.hash
    for change in ({"seed": 1}, {"dtypes": "f64"}, {"providers": "torch"}, {"exclude": "x"},
                   {"default_config": True}, {"time_budget": "1s"}):  # fmt: skip
        assert plan_of(laptop, **change).hash != one.hash


def test_the_options_of_cutlass_example_select_a_tile_and_skip_verification(gpu_machine):
    plan = plan_of(
        gpu_machine, device="cuda", providers="triton", mnkl="8192,8192,1024,1",
        mma_tiler_mn="256,128", ab_dtype="Float4E2M1FN", sf_dtype="Float8E8M0FNU", sf_vec_size=16,
        c_dtype="Float16", skip_ref_check=True, iterations=1,
    )  # fmt: skip
    (operation,) = plan.operations
    assert str(operation) == "matmul_8192x8192x1024_e2m1t_e2m1n_f16t_vs16_e8m0"
    assert (plan.settings.verify, plan.settings.repetitions) == (False, 1)
    names = [f"{operation}_widened_tile_{tile}x64_warps8" for tile in ("256x128", "128x256")]
    chosen = [plan.selection.matches("triton", name, operation) for name in names]
    assert chosen == [True, False]
    batched = plan_of(gpu_machine, mnkl="64,32,16,4", dtypes="f16", skip_ref_check=False)
    assert [str(one) for one in batched.operations] == ["batch_matmul_4x64x32x16_f16t_f16t_f16t"]
    assert batched.settings.verify


@pytest.mark.parametrize(
    ("provider", "device", "kind"),
    [("null", {}, TargetKind.NULL), ("numpy", {"device": "cpu"}, TargetKind.CPU)],
)
def test_other_providers_receive_no_requests(laptop, provider, device, kind):
    plan = plan_of(laptop, providers=provider, **device)
    assert [target.kind for target in plan.targets] == [kind]
    assert set(laptop.requests) == {provider}


def test_a_request_without_a_working_provider_is_reported(without_torch):
    with pytest.raises(RequestError, match=r"suits torch: its library is not installed"):
        plan_of(without_torch, providers="torch")
    with pytest.raises(RequestError, match="supports hip-gfx942"):
        plan_of(without_torch, device="hip-gfx942")


def test_user_named_alone_has_no_baseline(laptop, tmp_path):
    (tmp_path / "k.py").write_text("")
    plan = plan_of(laptop, base=tmp_path, providers="user", kernel="k.py:f")
    assert providers(plan) == ["user"]
