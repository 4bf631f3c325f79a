from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import pytest

from gemmetry.dispatches.figures import provider_places, render_picture
from gemmetry.domain.errors import RequestError
from gemmetry.results.palette import COLOURS

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def few(result_set):
    kept = [r for r in result_set.records if "_512x512x512_f32t" in r.operation]
    return dataclasses.replace(result_set, records=kept)


@pytest.fixture(scope="module")
def drawn(few):
    return render_picture(few, "svg")


def test_png_has_pixels_of_the_right_size(few):
    picture = render_picture(few, "png")
    width = int.from_bytes(picture[16:20], "big")
    height = int.from_bytes(picture[20:24], "big")
    assert picture.startswith(b"\x89PNG")
    assert width == 1080
    assert height > 1000


def test_svg_keeps_texts_and_hostile_titles_as_text(drawn):
    root = ElementTree.fromstring(drawn)
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "demo <script>alert(1)</script>" in texts
    assert "Roofline: f32 on cpu" in texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_the_same_results_make_the_same_svg(few, drawn):
    assert render_picture(few, "svg") == drawn


def _texts(picture):
    root = ElementTree.fromstring(picture)
    return ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_title_and_the_footer_mention_marked_measurements(few, drawn, make_record):
    clean = "\n".join(_texts(drawn))
    assert "based on" not in clean
    marks = ("noisy: interval ±98 %",)
    name = "matmul_64x64x64_f32t_f32t_f32t"
    records = [make_record(name, provider=p, gflops=9.0, marks=marks) for p in ("torch", "numpy")]
    noisy = "\n".join(_texts(render_picture(dataclasses.replace(few, records=records), "svg")))
    assert "numpy 1.00× (1, 1 based on marked measurements)" in noisy
    assert "! 2 less trustworthy: 2 noisy" in noisy


def _colours(picture):
    found = re.findall(rb"(?:fill|stroke): (#[0-9a-f]{6})", picture)
    return {colour.decode() for colour in found}


def test_a_provider_has_its_colour_of_the_page_whoever_else_was_measured(make_record, few):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    for providers in (["torch"], ["iree", "torch"], ["numpy", "torch"]):
        records = [make_record(name, provider=provider) for provider in providers]
        used = _colours(render_picture(dataclasses.replace(few, records=records), "svg"))
        places = provider_places(["iree", "numpy", "torch"])
        assert {p for p in places if COLOURS[places[p]] in used} == set(providers)


def test_dollar_signs_are_not_mathematics(few):
    titled = dataclasses.replace(few, title="$1 and \\frac $2", records=few.records[:1])
    assert b"$1 and \\frac $2" in render_picture(titled, "svg")


def test_a_speed_without_an_interval_has_a_bar_without_an_end(few, make_record):
    record = make_record("matmul_64x64x64_f32t_f32t_f32t")
    single = dataclasses.replace(record.measurement, ci_low_ns=None, ci_high_ns=None)
    alone = dataclasses.replace(record, measurement=single)
    ends = [
        render_picture(dataclasses.replace(few, records=[one]), "svg").count(b"<use")
        for one in (record, alone)
    ]
    assert ends[0] - ends[1] == 2, "the ends of the interval"


def test_nothing_measured_is_refused(few):
    failed = [r for r in few.records if r.measurement is None]
    with pytest.raises(RequestError, match="nothing to draw"):
        render_picture(dataclasses.replace(few, records=failed), "png")
