from __future__ import annotations

import json

import pytest

from gemmetry.dispatches.figures import (
    figures_of,
    grid_figures,
    heat_figures,
    is_grid,
    roofline_figures,
    sample_figures,
)
from gemmetry.domain.names import parse_operation
from gemmetry.results.palette import colour_at, contrast

PEAK = 450.0
BYTES_PER_NS = 25.0


def test_roof_follows_from_the_stored_shares(result_set):
    figure = next(f for f in roofline_figures(result_set.records) if f["dtypes"] == "f32")
    (low_x, low_y), (ridge_x, ridge_y), (_, top) = figure["roof"]
    assert top == pytest.approx(PEAK)
    assert ridge_y == pytest.approx(PEAK)
    assert ridge_x == pytest.approx(PEAK / BYTES_PER_NS)
    assert low_y / low_x == pytest.approx(BYTES_PER_NS)
    # No point lies above its roof.
    for point in figure["points"]:
        assert point["y"] <= min(PEAK, point["x"] * BYTES_PER_NS) * (1 + 1e-9)


def test_roof_is_drawn_no_further_than_it_is_known(make_record):
    large = make_record("matmul_4096x4096x4096_f32t_f32t_f32t", gflops=100.0)
    figure = roofline_figures([large])[0]
    assert [y for _, y in figure["roof"]] == pytest.approx([PEAK, PEAK])
    unknown = make_record("matmul_64x64x64_f16t_f16t_f16t", gflops=1.0)
    assert roofline_figures([unknown])[0]["roof"] == []


def test_a_crowded_roofline_keeps_each_providers_best(make_record):
    name = "matmul_512x512x512_f32t_f32t_f32t"
    records = [make_record(name, f"c{i}", provider="iree", gflops=1.0 + i) for i in range(2001)]
    few = roofline_figures(records[:2000])[0]
    assert (len(few["points"]), few["thinned"]) == (2000, False)
    many = roofline_figures([*records, make_record(name, provider="torch", gflops=7.0)])[0]
    assert many["thinned"]
    assert sorted(point["y"] for point in many["points"]) == pytest.approx([7.0, 2001.0])


def test_heat_maps_do_not_mix_k_or_layouts_and_leave_convolutions_out(result_set):
    figures = heat_figures(result_set.records)
    assert figures[0]["cells"] == 16
    assert figures[0]["label"] == "K = 512, f32 tt, cpu"
    assert len({f["label"] for f in figures}) == len(figures)
    shapes = sum(f["cells"] for f in figures if not f["label"].startswith("any K"))
    measured = {r.operation for r in result_set.records if r.measurement is not None}
    assert shapes == sum(not parse_operation(n).kind.startswith("conv") for n in measured)


def test_few_shapes_at_different_k_share_one_heat_map(make_record):
    names = [f"matmul_{n}x{n}x{n}_f32t_f32t_f32t" for n in (64, 128, 256)]
    figures = heat_figures([make_record(name) for name in names])
    assert figures[0]["label"] == "any K, f32 tt, cpu"
    assert figures[0]["cells"] == 3
    assert [figure["cells"] for figure in figures[1:]] == [1, 1, 1]


def test_a_heat_map_with_lonely_cells_is_none(make_record):
    diagonal = [make_record(f"matmul_{n}x{n}x64_f32t_f32t_f32t") for n in (64, 128, 256, 512)]
    assert [is_grid(figure) for figure in heat_figures(diagonal)] == [False]
    assert figures_of(diagonal, lambda _: ())["heat"] == []
    square = [make_record(f"matmul_{m}x{n}x64_f32t_f32t_f32t") for m in (8, 16) for n in (8, 16)]
    assert [is_grid(figure) for figure in heat_figures(square)] == [True]
    assert [is_grid(figure) for figure in heat_figures(square[:2])] == [False]


def test_cells_say_what_can_be_read_on_them(make_record):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    speeds = {"a": 100.0, "b": 50.0, "c": 1.0}
    (figure,) = grid_figures([make_record(name, c, gflops=s) for c, s in speeds.items()])
    assert figure["ink"] == [["#000000"], ["#000000"], ["#ffffff"]]
    square = [make_record(f"matmul_{m}x{n}x64_f32t_f32t_f32t", gflops=float(m + n))
              for m in (8, 16) for n in (8, 64)]  # fmt: skip
    (figure,) = heat_figures(square[:3])
    assert figure["ink"] == [["#ffffff", "#000000"], ["#ffffff", None]]
    alone = heat_figures([make_record(name)])[0]
    assert contrast(alone["ink"][0][0], colour_at(0.0)) >= 4.5


def test_the_page_has_configurations_whole_and_a_picture_shortens_them(make_record):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    tile = "tile_config_128x128_cache32x64x128_vector8x32x1"
    records = [make_record(name, one, provider="iree") for one in (tile, "tile_config_8x8_vector4")]
    for found in (grid_figures(records)[0], figures_of(records, lambda _: ())["grid"][0]):
        assert found["names"][0] == f"iree {tile}"
    assert grid_figures(records)[0]["rows"][0] == "iree 128x128_cache32x…tor8x32x1"
    rows = figures_of(records, lambda _: ())["grid"][0]["rows"]
    assert rows[0] == "iree 128x128_cache32x64x128_vector8x32x1"


def test_large_grids_are_cut_into_parts_and_the_slowest_rows_left_out(make_record):
    name = "matmul_{}x8x8_f32t_f32t_f32t"
    wide = [make_record(name.format(n), c) for n in range(1, 51) for c in ("a", "b")]
    labels = [(f["label"], len(f["columns"])) for f in grid_figures(wide)]
    assert labels == [("f32 on cpu, operations 1 to 40 of 50", 40),
                      ("f32 on cpu, operations 41 to 50 of 50", 10)]  # fmt: skip
    tall = [make_record(name.format(8), f"c{i}", gflops=1.0 + i) for i in range(70)]
    (figure,) = grid_figures(tall)
    assert (len(figure["rows"]), figure["hidden"]) == (60, 10)
    assert figure["rows"][0] == "torch c69"
    assert grid_figures(tall[:1]) == []


def test_samples_are_thinned_and_keep_their_order(make_record):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t")
    figure = sample_figures([record], lambda _record: range(1000, 2000))[0]
    assert figure["taken"] == 1000
    assert len(figure["ns"]) <= 300
    assert figure["ns"] == sorted(figure["ns"])
    assert sample_figures([record], lambda _record: ()) == []


def test_figures_are_json(result_set):
    figures = figures_of(result_set.records, result_set.samples)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert set(figures) == {"roofline", "speed", "grid", "heat", "samples"}
    assert len(figures["samples"]) == 152
