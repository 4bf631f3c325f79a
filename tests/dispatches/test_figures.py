from __future__ import annotations

import pytest

from gemmetry.dispatches.figures import heat_figures, roofline_figures
from gemmetry.domain.dispatch import parse_operation

PEAK = 450.0


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
