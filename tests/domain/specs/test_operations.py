from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain import opening
from gemmetry.domain.dispatch import TargetKind, parse_operation
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind
from gemmetry.domain.options import split_files
from gemmetry.domain.specs.fields import canonical_dtypes
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.specs.operations import (
    OperationBlock,
    Operations,
    SizeGrid,
    divide,
    expand,
    first_run,
    legacy,
    make_signatures,
    signature_axes,
)
from gemmetry.domain.specs.shapes import (
    PRESETS,
    parse_shape,
    parse_shapes,
    parse_sizes,
    print_shape,
    read_shapes,
)

FIRST_RUN_CPU, FIRST_RUN_GPU = first_run(TargetKind.CPU), first_run(TargetKind.CUDA)
IN_F32 = make_spec({"dtypes": "f32"})


def test_equal_requests_have_equal_documents():
    def document(m, dtypes):
        values = {"problem_m": m, "problem_n": 64, "problem_k": 64, "dtypes": dtypes}
        return expand(make_spec(values), FIRST_RUN_CPU).document

    one = document("64:256:64", "fp32")
    assert one == document([64, 128, 192], "f32")
    assert one != document("64:257:64", "fp32")


LEGACY = legacy("iree")


@pytest.mark.parametrize("defaults", [FIRST_RUN_CPU, FIRST_RUN_GPU, LEGACY])
def test_every_kind_has_shapes_and_formats(defaults):
    assert all(parse_shapes([name]) for name in PRESETS)
    for kind in OperationKind:
        assert parse_shapes(defaults.shapes[kind])
        for dtypes in defaults.dtypes[kind]:
            assert canonical_dtypes(dtypes) == dtypes


def test_a_first_run_suits_its_device():
    assert first_run(TargetKind.NULL) == FIRST_RUN_CPU != FIRST_RUN_GPU
    assert first_run(TargetKind.HIP) == FIRST_RUN_GPU


def test_a_grid_is_a_product_that_reads_twice():
    grid = SizeGrid((1, 2), (3,), (4, 5))
    expected = [MatmulShape(m, 3, k) for m in (1, 2) for k in (4, 5)]
    assert list(grid) == list(grid) == expected
    assert len(grid) == 4
    assert MatmulShape(2, 3, 5) in grid
    assert MatmulShape(2, 3, 6) not in grid and MatmulShape(2, 3, 5, 2) not in grid


def test_operations_are_lazy_and_without_duplicates():
    (signature,), _ = make_signatures(OperationKind.MATMUL, IN_F32)
    single = parse_operation("matmul_1x1x1_f16t_f16t_f16t")
    block = [Operation(signature, MatmulShape(1, 2, k)) for k in (3, 4)]
    operations = Operations(
        [OperationBlock((signature,), SizeGrid((1,), (2,), (3, 4)))], [single, block[0], single]
    )
    assert list(operations) == list(operations) == [*block, single]
    assert len(operations) == 3


def test_slices_that_do_not_divide_are_left_out():
    signatures, _ = make_signatures(OperationKind.MATMUL_SPLITK, IN_F32, (2, 3, 18))
    blocks, (note,) = divide(signatures, SizeGrid((8,), (8,), (12, 36)))
    found = {block.signatures[0].split_k_slices: [s.k for s in block.shapes] for block in blocks}
    assert found == {2: [12, 36], 3: [12, 36], 18: [36]}
    assert "1 shape(s)" in note and "18 slices" in note
    listed, _ = divide(signatures, (MatmulShape(8, 8, 36),))
    assert sum(map(len, listed)) == 3
    with pytest.raises(EmptySelectionError):
        divide(signatures[2:], (MatmulShape(8, 8, 8),))


def test_blocks_are_read_along_k_unless_layouts_are_given():
    axes = [signature_axes(make_spec(values)).layouts
            for values in ({"scaling": "vs1x128"}, {"scaling": "row"}, {})]  # fmt: skip
    assert axes == [("tn",), (), ()]


def test_many_operations_take_little_time():
    (signature,), _ = make_signatures(OperationKind.MATMUL, IN_F32)
    sizes = tuple(range(1, 65))
    operations = Operations([OperationBlock((signature,), SizeGrid(sizes, sizes, sizes))])
    start = time.process_time()
    assert sum(1 for _ in operations) == len(operations) == 2**18
    # 0.13 s on the development machine; the bound leaves room for slow ones.
    assert time.process_time() - start < 0.8


@settings(max_examples=200)
@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 500))
def test_ranges_agree_with_python(start, stop, step):
    expected = tuple(range(start, stop, step))
    with nullcontext() if expected else pytest.raises(EmptySelectionError):
        assert parse_sizes(f"{start}:{stop}:{step}") == expected


@settings(max_examples=300)
@given(st.text("0123456789:,- log2", max_size=12))
def test_any_text_gives_positive_sizes_or_our_error(text):
    try:
        sizes = parse_sizes(text)
    except RequestError:
        return
    assert sizes
    assert min(sizes) >= 1
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("a.csv,b.json", ["a.csv", "b.json"]),
        ("out/a.csv, b.xlsx,c.md", ["out/a.csv", "b.xlsx", "c.md"]),
        *((one, [one]) for one in ("a.csv", "a,b.csv", "folder", "run 1,5.csv")),
    ],
)
def test_commas_divide_files_that_all_have_suffixes(text, files):
    assert split_files(text) == files


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [("a.csv", b'm,n,k\n"' + b"1" * 200_000, "a.csv:2:1: not CSV: field larger"),
     ("a.yaml", b"- [1, 2\n- 3", r"a.yaml:\d:\d: not YAML: "),
     ("a.yaml", b"- \x01", r"a.yaml:1:1: not YAML: ")],
)  # fmt: skip
def test_what_a_format_cannot_hold_is_named_with_its_place(
    tmp_path, name, content, cause, monkeypatch
):
    monkeypatch.setattr(opening, "LONGEST_FIELD", 131_072)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=cause) as caught:
        read_shapes(tmp_path / name)
    assert caught.value.hint


@settings(max_examples=200)
@given(st.text("0123456789x_padstride", max_size=20))
def test_any_text_gives_a_shape_or_our_error(text):
    try:
        shape = parse_shape(text)
    except RequestError:
        return
    assert parse_shape(print_shape(shape)) == shape or shape.batch == 1


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
