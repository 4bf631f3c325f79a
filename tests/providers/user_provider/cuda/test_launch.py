from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.hardware.cuda_plans import Grid, Pointer
from gemmetry.providers.user_provider import cuda_kernel as launch
from gemmetry.providers.user_provider.cuda_kernel import plan_of, why_not
from gemmetry.providers.user_provider.cuda_manifest import load_manifest

H200 = Target(TargetKind.CUDA, "sm_90", 0)
OPERATION = parse_operation("matmul_100x70x33_f32t_f32n_f32t")
PLAIN = {
    "operations": '["f32t_f32n_f32t", "f32t_f32n_f32t_beta1"]', "block": '["TILE", 2]',
    "arguments": '["A", "B", "C", "addend", "M", "N", "ceil(K, 2)", "alpha", "beta"]',
    "grid": '["ceil(N, TILE)", "ceil(M, TILE)"]',
    "configurations": "[{TILE = 16, FAST = true}]",
}  # fmt: skip
VALUES = {"TILE": 16, "FAST": True}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_has_bindings", lambda: True)

    def made(**changes):
        (tmp_path / "k.cu").write_text('extern "C" __global__ void f() {}')
        text = "\n".join(f"{key} = {value}" for key, value in (PLAIN | changes).items())
        (tmp_path / "k.toml").write_text(f"[f]\n{text}")
        return load_manifest(f"{tmp_path / 'k.cu'}:f")

    return made


def test_sizes_are_those_of_the_expressions(kernel) -> None:
    made = kernel(cluster='["TILE // 8"]', shared_bytes='"TILE * K * 4"')
    (launch,) = plan_of(made, OPERATION, VALUES).launches
    sizes = {"blocks": (5, 7, 1), "threads": (16, 2, 1), "cluster": (2, 1, 1)}
    assert launch.grid == Grid(**sizes, dynamic_bytes=16 * 33 * 4)
    assert launch.compilation.entry == "f"
    assert launch.compilation.options == ("-DIN_F32=1", "-DOUT_F32=1", "-DTILE=16", "-DFAST=1")


@pytest.mark.parametrize(("factors", "last"), [("", None), ("_alpha0p5_beta2", Pointer("addend"))])
def test_arguments_are_addresses_integers_and_factors(kernel, factors, last) -> None:
    """A tensor that the operation lacks is null."""
    operation = parse_operation(f"matmul_100x70x33_f32t_f32n_f32t{factors}")
    (launch,) = plan_of(kernel(), operation, VALUES).launches
    values = (0.5, 2.0) if factors else (1.0, 0.0)
    addresses = (*map(Pointer, ("lhs", "rhs", "result")), last)
    assert launch.arguments == (*addresses, 100, 70, 17, *values)
    assert [type(one) for one in launch.arguments[4:]] == [int, int, int, float, float]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"requires": '["K % 8 == 0"]'}, "requires K % 8 == 0, and K = 33"),
        ({"grid": "[0]"}, "0 × 1 × 1 blocks"),
        ({"grid": '[1, "M * 1000"]'}, "1 × 100000 × 1 blocks"),
        ({"block": "[2048]"}, "2048 × 1 × 1 threads"),
        ({"block": "[64, 64]"}, "64 × 64 × 1 has more than 1024 threads"),
        ({"cluster": "[2]"}, "does not consist of whole clusters of 2 × 1 × 1"),
        ({"shared_bytes": '"-K"'}, "shared_bytes are negative"),
        ({"grid": '["M // (K - 33)"]'}, "'M // (K - 33)' has no value"),
        ({"arguments": '["C", "M * N * K * 100000"]'}, "does not fit an int"),
        ({"operations": '["f32t_f32t_f32t"]'}, "does not list these formats and layouts"),
    ],
)
def test_what_cannot_be_launched_is_refused_with_the_reason(kernel, changes, reason) -> None:
    assert why_not(kernel(), OPERATION, VALUES, H200) is None
    assert reason in (why_not(kernel(**changes), OPERATION, VALUES, H200) or "")


def test_other_devices_and_missing_bindings_name_what_helps(kernel, monkeypatch) -> None:
    reason = why_not(kernel(), OPERATION, VALUES, Target(TargetKind.CPU)) or ""
    assert "gemmetry compile --device cuda-sm_90" in reason
    monkeypatch.setattr(launch, "_has_bindings", lambda: False)
    assert "pip install 'gemmetry[cuda]'" in (why_not(kernel(), OPERATION, VALUES, H200) or "")


PRODUCT = parse_operation("matmul_512x768x1024_bf16t_bf16n_bf16t")


def test_machine_code_is_launched_as_its_source_is(copied) -> None:
    """The example is compiled from a kernel of the provider cuda."""
    from gemmetry.providers.cuda_provider.hopper import _plan_middle
    from gemmetry.providers.cuda_provider.kernel import Tiling

    plan = _plan_middle("r07_warp_specialised", Tiling(128, 256))
    (expected,) = plan(PRODUCT, None, 132).launches
    (found,) = plan_of(load_manifest(copied("nvcc")), PRODUCT, {}).launches
    assert found.grid == expected.grid
    *maps, result, _sizes = expected.arguments
    for ours, theirs in zip(found.arguments, maps, strict=False):
        assert ours.buffer == theirs.buffer
        for name in ("box", "extents", "all_strides", "swizzle_bytes"):
            assert getattr(ours.boxes, name) == getattr(theirs.boxes, name), name
        assert ours.boxes.swizzle_bytes == 128
    assert found.arguments[2] == result
    assert found.arguments[3] == b"".join(size.to_bytes(4, "little") for size in (512, 768, 1024))


ODD = parse_operation("matmul_512x768x1023_bf16t_bf16n_bf16t")
BLACKWELL = Target(TargetKind.CUDA, "sm_100", 0)


@pytest.mark.parametrize(
    ("name", "changes", "operation", "target", "reason"),
    [
        ("nvcc", [], PRODUCT, H200, None),
        ("nvcc", [], PRODUCT, BLACKWELL, "for sm_90a, which sm_100 does not run"),
        ("nvcc", [], PRODUCT, Target(TargetKind.CPU), "machine code for sm_90a of NVIDIA"),
        ("nvcc", [("[384]", "[512]")], PRODUCT, H200, "more than the code's 384 threads"),
        ("cute", [("[128]", "[64]")], PRODUCT, H200, "and the code requires 128 × 1 × 1"),
        ("nvcc", [('"1024 +', '"65536 +')], PRODUCT, H200, "need 262208 bytes of shared memory"),
        ("nvcc", [], ODD, H200, "rows of a multiple of 16 bytes"),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_what_code_cannot_do_is_refused(copied, name, changes, operation, target, reason) -> None:
    found = why_not(load_manifest(copied(name, *changes)), operation, {}, target)
    assert found is None if reason is None else reason in (found or "")


def test_clusters_that_code_was_compiled_for_need_not_be_stated(tmp_path) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from gemmetry.hardware.cuda_compiler import compile_file

    (tmp_path / "s.cu").write_text('extern "C" __global__ void __cluster_dims__(2, 1, 1) f() {}')
    (tmp_path / "k.cubin").write_bytes(compile_file(tmp_path, "s", (), "sm_90a").code)
    text = '[f]\noperations = ["f32t_f32n_f32t"]\narguments = []\nblock = [32]\n'

    def own(grid):
        (tmp_path / "k.toml").write_text(text + grid)
        return load_manifest(f"{tmp_path / 'k.cubin'}:f")

    (launch,) = plan_of(own("grid = [4]"), OPERATION, {}).launches
    assert launch.grid.cluster == (2, 1, 1)
    for grid, reason in {
        "grid = [3]": "whole clusters",
        "grid = [4]\ncluster = [4]": "its cluster is 4 × 1 × 1, and the code requires 2 × 1 × 1",
    }.items():
        assert reason in (why_not(own(grid), OPERATION, {}, H200) or "")
    assert why_not(own("grid = [4]"), OPERATION, {}, H200) is None
