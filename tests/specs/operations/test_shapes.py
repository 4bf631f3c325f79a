from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError, SpecError, UnknownNameError
from gemmetry.domain.operation import Conv2dShape, MatmulShape
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.specs.shapes import (
    PRESETS,
    parse_shape,
    parse_shapes,
    print_shape,
    read_shapes,
)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("768x512x1024", MatmulShape(768, 512, 1024)),
        ("768X512X1024", MatmulShape(768, 512, 1024)),
        ("16x512x64x512", MatmulShape(512, 64, 512, 16)),
        ("1x58x58x64_3x3x128", Conv2dShape(1, 58, 58, 64, 3, 3, 128)),
        (
            "1x56x56x64_3x3x64_stride2x2_pad1x1",
            Conv2dShape(1, 56, 56, 64, 3, 3, 64, 2, 2, 1, 1),
        ),
    ],
)
def test_reads_a_shape(text, shape):
    assert parse_shape(text) == shape
    assert parse_shape(print_shape(shape)) == shape


@pytest.mark.parametrize(
    "text", ["768x512", "0x2x3", "-1x2x3", "axbxc", "1x2x3_4", "", "1x2x3x4x5"]
)
def test_texts_that_are_not_shapes_are_refused(text):
    with pytest.raises(RequestError) as caught:
        parse_shape(text)
    assert repr(text) in caught.value.message


def test_every_preset_reads_and_has_a_source():
    for name, preset in PRESETS.items():
        assert parse_shapes([name])
        assert preset.source


def test_lists_mix_presets_and_shapes_without_duplicates():
    assert parse_shapes(["legacy,256x512x128", "1x2x3"]) == (
        MatmulShape(256, 512, 128),
        MatmulShape(2560, 2560, 2560),
        MatmulShape(3456, 1024, 2048),
        MatmulShape(1, 2, 3),
    )


def test_unknown_preset_names_the_nearest():
    with pytest.raises(UnknownNameError, match="squars") as caught:
        parse_shapes(["squars"])
    assert "squares" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "m,n,k,batch\n64,128,256,1\n\n# comment\n512,64,512,16\n"),
        ("s.csv", "64,128,256\n16,512,64,512\n"),
        ("s.csv", "note,shape\nfirst,64x128x256\nsecond,16x512x64x512\n"),
        ("s.yaml", "- 64x128x256\n- {m: 512, n: 64, k: 512, batch: 16}\n"),
        ("s.yml", "- [64, 128, 256]\n- [16, 512, 64, 512]\n"),
        ("s.txt", "64x128x256  # first\n\n16 512 64 512\n"),
    ],
)
def test_reads_files(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    expected = (MatmulShape(64, 128, 256), MatmulShape(512, 64, 512, 16))
    assert parse_shapes([name], base=tmp_path) == expected
    assert parse_shapes([f"@{name}"], base=tmp_path) == expected


def test_mistakes_in_a_file_are_all_reported_with_their_lines(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("m,n,k\n64,0,256\n64,64,64\nx,1,1\n")
    with pytest.raises(SpecError) as caught:
        read_shapes(path)
    assert [line.split(": ")[0] for line in caught.value.mistakes] == [f"{path}:2:1", f"{path}:4:1"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "x,y\n1,2\n"), ("a.yaml", "m: 3\n"), ("a.yaml", "[1,"), ("a.txt", "# nothing\n")],
)
def test_refuses_files_without_shapes(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(RequestError):
        read_shapes(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("a.csv", b'm,n,k\n"' + b"1" * 200_000, "a.csv:2:1: not CSV: field larger"),
        ("a.yaml", b"- [1, 2\n- 3", r"a.yaml:\d:\d: not YAML: "),
        ("a.yaml", b"- \x01", r"a.yaml:1:1: not YAML: "),
        ("a.yaml", b"# nothing", "a.yaml contains no shapes"),
        ("a.csv", b"m,n,k\n8,8,8\n64,32\n", r"a.csv:3:1: .*\(m 64, n 32\): k is missing\n"),
        (
            "a.csv",
            b"k,b,m,n\n8,2,,1.5\n",
            "m is missing; n is '1.5', which is not a whole number\n",
        ),
        ("a.yaml", b"- {m: 64, k: 32}", r"a.yaml:1:1: .*\(m 64, k 32\): n is missing\n"),
    ],
)
def test_what_a_format_cannot_hold_is_named_with_its_place(tmp_path, name, content, cause):
    csv.field_size_limit(131_072)  # of the process; readers of traces raise it
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=cause) as caught:
        read_shapes(tmp_path / name)
    assert caught.value.hint


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_heading(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfm,n,k\r\n8,16,32\r\n")
    assert read_shapes(tmp_path / "a.csv") == [MatmulShape(8, 16, 32)]


@settings(deadline=None, max_examples=200)
@given(st.text("0123456789x_padstride", max_size=20))
def test_any_text_gives_a_shape_or_our_error(text):
    try:
        shape = parse_shape(text)
    except RequestError:
        return
    assert parse_shape(print_shape(shape)) == shape or shape.batch == 1


def test_files_of_tunable_op_are_read(tmp_path):
    """Column-major sizes: m x n of the library is N x M of the row-major result."""
    path = tmp_path / "tunableop_results0.csv"
    path.write_text(
        "Validator,PT_VERSION,2.9.0\n"
        "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
        "GemmTunableOp_float_NT,nt_25088_4096_64,Gemm_Hipblaslt_1219,1.262\n"
        "GemmTunableOp_BFloat16_TN,tn_28672_2048_4096_ld_4096_4096_28672,Default,0.612\n"
        "GemmStridedBatchedTunableOp_Half_NN,nn_512_64_128_B_16,Gemm_Rocblas_7,0.02\n"
        "GemmTunableOp_float_NT,nt_25088_4096_64,Gemm_Hipblaslt_1219,1.262\n"
    )
    shapes = read_shapes(path)
    assert [print_shape(shape) for shape in shapes] == [
        "4096x25088x64", "2048x28672x4096", "16x64x512x128", "4096x25088x64",
    ]  # fmt: skip
    assert len(parse_shapes([str(path)])) == 3


def test_command_lines_of_hipblaslt_bench_are_read(tmp_path):
    """Whatever else the program wrote to the log."""
    path = tmp_path / "hipblaslt.log"
    path.write_text(
        "step 1 of 20, it isn't a shape\n"
        "hipblaslt-bench --api_method c -m 28672 -n 2048 -k 4096 --lda 4096 --ldb 4096 --ldc 28672 "
        "--transA T --transB N --batch_count 1 --a_type bf16_r --compute_type f32_r\n"
        "[rank 3] hipblaslt-bench --sizem 512 --sizen 64 --sizek 128 --batch_count 16 --transA N\n"
    )
    assert [print_shape(shape) for shape in parse_shapes([str(path)])] == [
        "2048x28672x4096", "16x64x512x128",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "mistake"),
    [
        (
            "a.csv",
            "GemmTunableOp_float_NT,nt_25088_64,x,1\n",
            ":1:1: cannot read the shape 'nt_25088_64'",
        ),
        (
            "a.csv",
            "Validator,PT_VERSION,2\nGemmTunableOp_float_NT\n",
            ":2:1: cannot read the shape",
        ),
        ("a.log", "\nhipblaslt-bench -m 8 -k 8\n", ":2:1: .*n is missing"),
        ("a.log", "hipblaslt-bench -m 8 -n 8 -k -1\n", ":1:1: .*k is '-1'"),
        ("a.log", "hipblaslt-bench -m 0 -n 8 -k 1 'x\n", ":1:1: .*n=0: sizes start at 1"),
    ],
)
def test_mistakes_in_what_libraries_write_have_their_place(tmp_path, name, text, mistake):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError, match=mistake):
        read_shapes(path)


def test_a_file_of_tunable_op_without_results_has_no_shapes(tmp_path):
    path = tmp_path / "tunableop_results0.csv"
    path.write_text("Validator,PT_VERSION,2.9.0\n")
    with pytest.raises(RequestError, match="contains no shapes"):
        read_shapes(path)


REPORTS = Path(__file__).parents[2] / "data" / "reports" / "30"
LOGGED = ["2048x28672x4096", "32x2048x64x128"]


@pytest.mark.parametrize(("name", "place", "shapes"), [
    *((name, place, shapes)
      for name, shapes in (("rocblas.log", LOGGED[:1]), ("hipblaslt.log", LOGGED),
                           ("hipblaslt_profile.log", LOGGED))
      for place in ("30/{}", "./30/{}", "@{}", "1.{}.yaml", "{}.txt", "30.csv", "2026-09-01")),
    *(("tunableop_results0.csv", place,
       ["2048x28672x4096", "2048x4096x11008", "32x2048x128x64", "1024x8192x4096"])
      for place in ("30/{}", "2026-09-01/{}", "{}")),
])  # fmt: skip
def test_shapes_of_a_librarys_log_wherever_it_lies(name, place, shapes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    item = place.format(name)
    path = Path(item.removeprefix("@"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((REPORTS / name).read_text())
    for written in (item, [item]):
        spec = ProfileSpec.model_validate({"shapes": written})
        assert [print_shape(shape) for shape in parse_shapes(spec.shapes)] == shapes


def test_calls_that_are_no_products_are_left_out(tmp_path):
    log = tmp_path / "rocblas.log"
    log.write_text(
        "rocblas_create_handle,atomics_allowed\n"
        "./rocblas-bench -f gemv -r f32_r --transposeA N -m 8 -n 16 --alpha 1 --lda 8\n"
        "- { rocblas_function: \"rocblas_sgemm\", transA: 'N', M: 8, N: 16, K: 32, lda: 8 }\n"
        "- { rocblas_function: \"rocblas_strsm\", side: 'L', M: 8, N: 16, lda: 8 }\n"
        "rocblas-bench -f gemm_strided_batched_ex -m 8 -n 16 -k 32 --batch_count 4\n"
    )
    assert [print_shape(shape) for shape in read_shapes(log)] == ["16x8x32", "4x16x8x32"]


def test_a_shape_is_no_file_even_where_one_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("64x64x64").write_text("128x128x128")
    assert parse_shapes(["64x64x64"]) == (MatmulShape(64, 64, 64),)
    assert parse_shapes(["@64x64x64"]) == (MatmulShape(128, 128, 128),)
