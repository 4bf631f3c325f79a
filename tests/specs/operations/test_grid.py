from __future__ import annotations

import pytest

from gemmetry.domain.errors import EmptySelectionError, SpecError
from gemmetry.domain.operation import MatmulShape
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.operations import (
    DEFAULT_PRECISIONS,
    DEFAULT_RECTANGLES,
    DEFAULT_SQUARES,
    grid_axes,
)


def axes(**values):
    return grid_axes(make_spec(values))


def test_the_documents_example_has_three_configurations():
    found = axes(
        enable_size_search=False,
        enable_precision_search=True,
        enable_layout_search=False,
        enable_batch_search=False,
        matrix_sizes=[[1024, 1024, 1024], [2048, 2048, 2048]],
        precisions=["fp32", "fp16", "bf16"],
    )
    assert found.shapes == (MatmulShape(1024, 1024, 1024),)
    assert found.precisions == ("f32", "f16", "bf16")
    assert found.layouts == ()


def test_no_settings_give_no_grid():
    assert axes() == axes(enable_size_search=False)
    assert axes().shapes == axes().precisions == axes().layouts == ()


def test_switches_without_lists_search_the_lists_here():
    assert len(axes(enable_size_search=True).shapes) == len(DEFAULT_SQUARES)
    rectangular = axes(enable_size_search=True, enable_rectangular=True).shapes
    assert len(rectangular) == len(DEFAULT_SQUARES) + len(DEFAULT_RECTANGLES)
    assert axes(enable_precision_search=True).precisions == DEFAULT_PRECISIONS
    assert axes(enable_layout_search=True).layouts == ("tt", "tn", "nt", "nn")


def test_batches_multiply_and_their_switch_fixes_the_first():
    sizes = [8, 16]
    assert [s.batch for s in axes(matrix_sizes=sizes, batch_sizes=[1, 4]).shapes] == [1, 1, 4, 4]
    fixed = axes(matrix_sizes=sizes, batch_sizes=[4, 1], enable_batch_search=False).shapes
    assert [s.batch for s in fixed] == [4, 4]
    assert len(axes(matrix_sizes=[8], enable_batch_search=True).shapes) == 3


def test_rectangular_off_leaves_out_what_is_not_square():
    sizes = [[8, 8, 8], [8, 16, 8]]
    assert axes(matrix_sizes=sizes, enable_rectangular=False).shapes == (MatmulShape(8, 8, 8),)
    assert len(axes(matrix_sizes=sizes).shapes) == 2
    with pytest.raises(EmptySelectionError, match="square"):
        axes(matrix_sizes=[[8, 16, 8]], enable_rectangular=False)


@pytest.mark.parametrize(
    ("a", "b", "layout"),
    [(True, False, "nt"), (None, True, "tn"), (True, True, "nn"), (False, None, "tt")],
)
def test_transposing_is_a_layout(a, b, layout):
    assert axes(transpose_a=a, transpose_b=b).layouts == (layout,)


def test_the_options_of_cutlass_example_are_shapes_formats_and_scaling():
    found = axes(mnkl="8192,8192,1024,1", sf_dtype="Float8E8M0FNU", sf_vec_size=16)
    assert found.shapes == (MatmulShape(8192, 8192, 1024),)
    assert (found.scaling, found.layouts) == ("vs16_e8m0", ("tn",))
    assert axes(mnkl=[64, 32, 16, 4]).shapes == (MatmulShape(64, 32, 16, 4),)
    assert axes(sf_dtype="Float8E4M3FN").scaling == "vs16_e4m3"
    assert axes(sf_vec_size=32).scaling == "vs32_e8m0"
    assert axes(sf_dtype="Float32", sf_vec_size=128).scaling == "vs1x128"


def test_blocks_are_read_along_k_unless_layouts_are_given():
    assert axes(scaling="vs1x128").layouts == ("tn",)
    assert axes(scaling="row").layouts == axes().layouts == ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mnkl": "64,64,64"}, "not M,N,K,L"),
        ({"mnkl": "64,64,0,1"}, "below 1"),
        ({"mma_tiler_mn": "256"}, "not M,N"),
        ({"sf_dtype": "e8m1"}, "unknown dtype"),
        ({"sf_vec_size": 0}, "below 1"),
        ({"scaling": "vs16", "sf_vec_size": 16}, "mean the same"),
        ({"scaling": "vs16_e9m0"}, "unknown scaling"),
    ],
)
def test_mistakes_in_them_are_reported(values, words):
    with pytest.raises(SpecError, match=words):
        axes(**values)
