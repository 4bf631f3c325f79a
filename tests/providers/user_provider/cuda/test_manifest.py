from __future__ import annotations

import struct
from pathlib import Path
from unittest.mock import Mock

import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.record import Trait
from gemmetry.hardware.cuda_plans import Boxes, Pointer, Tiles
from gemmetry.providers.user_provider.cuda_manifest import (
    MapArgument,
    StructArgument,
    argument_bytes,
    argument_for,
    kernels_of,
    load_manifest,
    parse_expression,
)

EXAMPLES = Path(__file__).parents[4] / "examples"

SOURCE = """
#include "tile.cuh"
extern "C" __global__ void __launch_bounds__(TILE * TILE) f(const float* a, int m) {}
extern "C" __global__ __cluster_dims__(2, 1, 1) void g(float* c) {}
"""
PLAIN = """
operations = ["f32t_f32n_f32t"]
arguments = ["A", "B", "C", "M", "N", "K"]
grid = ["ceil(N, TILE)", "ceil(M, TILE)"]
block = ["TILE", "TILE"]
configurations = [{TILE = 8, unroll = true}, {TILE = 16, unroll = false}]
"""


PRODUCT = "f32t_f32n_f32t"


@pytest.fixture
def write(tmp_path):
    """Write a source and the table of f; returns the text of --kernel."""

    def written(table=PLAIN, head="[f]"):
        (tmp_path / "k.cu").write_text(SOURCE)
        (tmp_path / "tile.cuh").write_text("")
        (tmp_path / "k.toml").write_text(f"{head}\n{table}")
        return f"{tmp_path / 'k.cu'}:f"

    return written


def test_names_of_configurations_are_those_of_python_functions(write) -> None:
    for prefix in ("", "f_"):
        kernel = load_manifest(write(), prefix=bool(prefix))
        names = [f"{prefix}TILE8_unroll_true", f"{prefix}TILE16_unroll_false"]
        assert list(kernel.configurations) == names
    asked = load_manifest(write(), configurations=[{"TILE": 32}])
    assert list(asked.configurations) == ["TILE32"]
    without = PLAIN.partition("configurations")[0].replace("TILE", "16")
    for rest in ("", "configurations = []", 'declares = ["nondeterministic"]'):
        kernel = load_manifest(write(without + rest))
        assert dict(kernel.configurations) == {"default": {}}
    assert kernel.declared == (Trait.NONDETERMINISTIC,)


@pytest.mark.parametrize(
    ("listed", "operation", "computes"),
    [
        (PRODUCT, f"matmul_5x6x7_{PRODUCT}", True),
        (PRODUCT, "matmul_5x6x7_f32t_f32t_f32t", False),
        (PRODUCT, f"matmul_5x6x7_{PRODUCT}_alpha2", False),
        (PRODUCT, f"batch_matmul_2x5x6x7_{PRODUCT}", False),
        (f"batch_matmul_{PRODUCT}", f"batch_matmul_2x5x6x7_{PRODUCT}", True),
        (f"{PRODUCT}_bias_relu", f"matmul_5x6x7_{PRODUCT}_bias_relu", True),
    ],
)
def test_operations_are_compared_by_formats_layouts_and_steps(write, listed, operation, computes):
    kernel = load_manifest(write(PLAIN.replace(PRODUCT, listed)))
    assert kernel.computes(parse_operation(operation).signature) is computes


def test_factors_that_are_arguments_have_any_value(write) -> None:
    table = PLAIN.replace('"K"]', '"K", "alpha", "beta", "addend"]')
    table = table.replace('"f32t_f32n_f32t"]', '"f32t_f32n_f32t", "f32t_f32n_f32t_beta1"]')
    kernel = load_manifest(write(table))
    for factors in ("", "_alpha2", "_beta3", "_alpha0p5_betam1"):
        operation = parse_operation(f"matmul_5x6x7_f32t_f32n_f32t{factors}")
        assert kernel.computes(operation.signature), factors


def test_a_change_of_any_file_changes_the_digest(write, tmp_path) -> None:
    text = write()
    seen = {load_manifest(text).digest}
    for name in ("k.cu", "k.toml", "tile.cuh"):
        with (tmp_path / name).open("a") as file:
            file.write("# \n" if name == "k.toml" else "// \n")
        seen.add(load_manifest(text).digest)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("table", "head", "message"),
    [
        (PLAIN, "[h]", r"unknown kernel 'f' in k\.toml"),
        ("grid = [1", "[f]", r"k\.toml is not valid TOML"),
        ("block = [32]", "[f]", "lacks operations, arguments, grid"),
        ("", "size = 3\n[f]", "'size' stands outside"),
        (PLAIN + "threads = 3", "[f]", r"unknown key 'threads' in k\.toml \[f\]"),
        (PLAIN.replace("ceil(N, TILE)", "ceil(N, TILES)"), "[f]", "unknown size or macro 'TILES'"),
        (PLAIN.replace("ceil(N, TILE)", "N / TILE"), "[f]", "grid: .*// divides"),
        (PLAIN.replace('"TILE", "TILE"', "1, 1, 1, 1"), "[f]", "one to three numbers"),
        (PLAIN.replace('"B", ', '"D", '), "[f]", "unknown argument 'D'"),
        (PLAIN.replace("f32t_f32n", "f32t_f31n"), "[f]", r"\[f\]: operations: .*f31"),
        (PLAIN.replace('"f32t_f32n_f32t"', "32"), "[f]", "operations: 32 is not a text"),
        (PLAIN.replace('"f32t_f32n_f32t"', ""), "[f]", "operations: there are none"),
        (PLAIN + 'declares = ["fast"]', "[f]", "unknown declaration 'fast'"),
        (PLAIN + 'requires = ["K %% 8"]', "[f]", "requires: .*is not an expression"),
        (PLAIN.replace("{TILE = 8, unroll = true}", "8"), "[f]", "not a configuration"),
        (PLAIN.replace("TILE = 8", "TILES = 8"), "[f]", "unknown size or macro 'TILE'"),
    ],
)
def test_mistakes_name_the_manifest_and_the_key(write, table, head, message) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        load_manifest(write(table, head))
    assert caught.value.hint


def test_a_kernel_that_the_source_lacks_is_named_with_those_it_has(write, tmp_path) -> None:
    write(head="[h]")
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'h' in k\.cu") as caught:
        load_manifest(f"{tmp_path / 'k.cu'}:h")
    assert "f, g" in caught.value.hint
    with pytest.raises(RequestError, match="no kernel file"):
        load_manifest(f"{tmp_path / 'other.cu'}:h")
    with (tmp_path / "k.cu").open("a") as file:
        file.write('#define KERNEL(name) extern "C" __global__ void name##h() {}\nKERNEL()\n')
    assert load_manifest(f"{tmp_path / 'k.cu'}:h").function_name == "h"


def test_a_manifest_that_is_unreadable_or_missing_is_named(write, tmp_path, monkeypatch) -> None:
    text = write()

    refused = Mock(side_effect=PermissionError(13, "Permission denied", "k.toml"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        with pytest.raises(RequestError, match=r"k\.toml.* permission"):
            load_manifest(text)
    (tmp_path / "k.toml").unlink()
    with pytest.raises(RequestError, match=r"no k\.toml next to it") as caught:
        load_manifest(text)
    assert "[f]" in caught.value.hint


CUBINS = EXAMPLES / "cubins"


def test_a_file_or_a_folder_stands_for_all_of_its_kernels(tmp_path) -> None:
    cute, nvcc = (f"{CUBINS / name}_gemm.cubin:{name}" for name in ("cute", "nvcc"))
    assert kernels_of(CUBINS) == [cute, nvcc]
    assert kernels_of(CUBINS / "cute_gemm.cubin") == [cute]
    assert kernels_of(EXAMPLES / "my_gemm.cu") == [f"{EXAMPLES / 'my_gemm.cu'}:tiled"]
    with pytest.raises(RequestError, match=r"contains no \.cubin files"):
        kernels_of(tmp_path)
    (tmp_path / "k.cubin").touch()
    with pytest.raises(RequestError, match=r"no k\.toml next to it"):
        kernels_of(tmp_path)
    (tmp_path / "k.toml").touch()
    with pytest.raises(RequestError, match="lists no kernel"):
        kernels_of(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('entry = "gemm"', 'entry = "gem"'), r"unknown kernel 'gem' in nvcc_gemm\.cubin"),
        (('entry = "gemm"', "entry = 3"), "entry: 3 is not a text"),
        (('    "C",\n', ""), "takes 4 .* 128, 128, 8 and 12 bytes, .* 3 .* 128, 128 and 12 bytes"),
        (('["M", "N", "K"]', '["M", "N", {int64 = "K"}]'), "lists 4 .* 128, 128, 8 and 16 bytes"),
        (('["M", "N", "K"]', "[]"), "the struct is empty"),
        (('{struct = ["M", "N", "K"]}', "{}"), "neither a struct nor an int64"),
        (("{struct =", "{structs ="), "unknown key 'structs' in arguments of"),
        (("swizzle = 128, promotion = 128},\n    {", "swizle = 128},\n    {"), "key 'swizle'"),
        (("swizzle = 128", "swizzle = 96"), "swizzle: 96 is none of 0, 32, 64, 128"),
        (('map = "A"', 'map = "D"'), "unknown tensor 'D'"),
        (("box = [64, 128]", "box = []"), "box: it has one to five numbers"),
        (("box = [64, 128]", "box = [64, 'P']"), "unknown size or macro 'P' in box"),
    ],
)
def test_mistakes_about_machine_code_are_named(copied, change, message) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        load_manifest(copied("nvcc", change))
    assert caught.value.hint


def test_a_file_that_is_no_machine_code_is_named(copied, tmp_path) -> None:
    text = copied("nvcc")
    data = (tmp_path / "nvcc_gemm.cubin").read_bytes()
    for content, reason in ((data[:5000], "damaged or cut off"), (b"PTX" * 99, "not an ELF file")):
        (tmp_path / "nvcc_gemm.cubin").write_bytes(content)
        with pytest.raises(RequestError, match=rf"nvcc_gemm\.cubin is not machine code.*{reason}"):
            load_manifest(text)


NAMES = {"M": 1000, "N": 64, "K": 33, "TILE": 32}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (7, 7), ("TILE", 32), ("ceil(M, TILE)", 32), ("-K", -33), ("K % 8 == 0", 0),
        ("ceil(N, TILE) * ceil(M, TILE) + 1", 65),
        ("2 * (M + K) // TILE % 10", 4),
        ("min(M, N) - max(K, TILE, 1)", 31),
        ("0 < N <= 64 and not M == N or K < 0", 1),
    ],
)  # fmt: skip
def test_expressions_have_the_values_of_integer_arithmetic(text, value) -> None:
    found = parse_expression(text).value(NAMES)
    assert found == value
    assert type(found) is int


def test_the_names_that_an_expression_mentions_are_known() -> None:
    assert parse_expression("ceil(M, TILE) * min(N, 2)").names == {"M", "N", "TILE"}
    assert parse_expression("min").names == set()  # a name that the manifest does not know


@pytest.mark.parametrize(
    "text",
    [
        "", "M +", "M ** N", "M / N", "M << 2", "1.5", "'M'", "True", "f(M)", "M.real",
        "[M]", "ceil(M, step=2)", "(lambda: M)()", "__import__('os')", "M if N else K", "M := 2",
        None, 1.5, True, ["M"],
    ],
)  # fmt: skip
def test_anything_else_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"expression|made of"):
        parse_expression(text)


@pytest.mark.parametrize("text", ["M // (N - 64)", "M % 0", "ceil(M)", "min()"])
def test_an_expression_without_a_value_names_itself(text) -> None:
    with pytest.raises(ValueError, match="has no value"):
        parse_expression(text).value(NAMES)


SIZES = {"M": 96, "N": 64, "K": 40, "BATCH": 1, "SLICES": 1}
OPERATION = parse_operation("matmul_96x64x40_bf16n_bf16n_f32t")


def _box(*sizes):
    return tuple(map(parse_expression, sizes))


def _struct(*members):
    return StructArgument(tuple((kind, parse_expression(text)) for kind, text in members))


@pytest.mark.parametrize(
    ("tensor", "role", "element", "extents"),
    [
        ("A", "lhs", "bf16", (96, 40)),  # column-major: neighbours differ in their row
        ("B", "rhs", "bf16", (40, 64)),
        ("C", "result", "f32", (64, 96)),
    ],
)
def test_the_contiguous_axis_of_a_map_comes_first(tensor, role, element, extents) -> None:
    sizes = {"box": (8, 4), "swizzle_bytes": 64, "promotion_bytes": 128}
    argument = MapArgument(tensor, _box(8, "K // 10"), 64, 128)
    expected = Tiles(role, Boxes(element=element, extents=extents, **sizes))
    assert argument_for(argument, OPERATION, SIZES) == expected


def test_a_map_may_have_an_axis_for_the_batch() -> None:
    operation = parse_operation("batch_matmul_3x96x64x48_e4m3t_e4m3n_f32t")
    batched = argument_for(MapArgument("B", _box(16, 8, 1)), operation, SIZES)
    assert isinstance(batched, Tiles)
    assert (batched.boxes.element, batched.boxes.extents) == ("u8", (48, 64, 3))
    single = argument_for(MapArgument("B", _box(16, 8, 1)), OPERATION, SIZES)
    assert isinstance(single, Tiles) and single.boxes.extents == (40, 64, 1)


ODD = parse_operation("matmul_96x64x41_bf16t_bf16n_f32t")
FP4 = parse_operation("matmul_96x64x64_e2m1t_e2m1n_f32t_vs32_e8m0")


@pytest.mark.parametrize(
    ("argument", "operation", "reason"),
    [
        (MapArgument("bias", _box(8)), OPERATION, "does not have"),
        (MapArgument("A", _box(8)), OPERATION, "lacks an axis"),
        (MapArgument("A", _box(8, 257)), OPERATION, "8 × 257; 1 to 256"),
        (MapArgument("A", _box(64, 8), 64), OPERATION, "has 128 bytes, and the swizzle 64"),
        (MapArgument("A", _box(8, 8)), ODD, "multiple of 16 bytes; they have 82"),
        (MapArgument("A", _box(8, 8)), FP4, "no tensor maps of e2m1"),
        (_struct(("int", "M * 100000000")), OPERATION, "does not fit an int"),
        (_struct(("int64", "M * 10000000000 * 10000000000")), OPERATION, "fit an int64"),
    ],
)
def test_what_cannot_be_passed_is_refused(argument, operation, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        argument_for(argument, operation, SIZES)


def test_integers_of_a_struct_lie_as_in_c() -> None:
    mixed = _struct(("int", "M"), ("int64", "N * 4294967296"), ("int", "K"))
    assert argument_bytes(mixed) == 24
    assert argument_for(mixed, OPERATION, SIZES) == struct.pack("<iiqii", 96, 0, 64 << 32, 40, 0)
    assert argument_for(_struct(("int64", "K")), OPERATION, SIZES) == struct.pack("<q", 40)
    assert argument_bytes(_struct(("int", "M"), ("int", "N"), ("int", "K"))) == 12


def test_sizes_are_those_of_the_parameters() -> None:
    kinds = ["A", "alpha", parse_expression("M"), MapArgument("A", _box(8, 8))]
    assert [argument_bytes(one) for one in kinds] == [8, 4, 4, 128]
    assert argument_for("A", OPERATION, SIZES) == Pointer("lhs")
    assert argument_for("bias", OPERATION, SIZES) is None
