from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import pytest

from gemmetry.dispatches.figures import provider_places, render_figure
from gemmetry.domain.errors import RequestError
from gemmetry.results.palette import COLOURS

pytest.importorskip("matplotlib")

NAME = "matmul_64x64x64_f32t_f32t_f32t"


@pytest.fixture(scope="module")
def few(result_set):
    kept = [r for r in result_set.records if "_512x512x512_f32t" in r.operation]
    return dataclasses.replace(result_set, records=kept)


@pytest.fixture
def svg(few):
    """Draws these records, under another title where there is one."""
    return lambda *records, **more: render_figure(
        dataclasses.replace(few, records=records, **more), "svg"
    )


def _texts(picture):
    root = ElementTree.fromstring(picture)
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    return ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]


def test_png_has_pixels_of_the_right_size(result_set):
    """With a heat map of a grid of sizes."""
    grid = [r for r in result_set.records if r.provider == "torch" and "f32t_f32t" in r.operation]
    picture = render_figure(dataclasses.replace(result_set, records=grid), "png")
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == 1080
    assert int.from_bytes(picture[20:24], "big") > 1000


def test_svg_keeps_hostile_titles_as_text_and_is_the_same_each_time(few, svg):
    drawn = render_figure(few, "svg")
    texts = _texts(drawn)
    assert {"demo <script>alert(1)</script>", "Roofline: f32 on cpu"} <= set(texts)
    assert not any("based on" in text for text in texts)
    assert render_figure(few, "svg") == drawn
    # Dollar signs are not mathematics.
    assert b"$1 and \\frac $2" in svg(few.records[0], title="$1 and \\frac $2")


def test_the_title_and_the_footer_mention_marked_measurements(svg, make_record):
    marks = ("noisy: interval ±98 %",)
    records = [make_record(NAME, provider=p, gflops=9.0, marks=marks) for p in ("torch", "numpy")]
    noisy = "\n".join(_texts(svg(*records)))
    assert "numpy 1.00× (1, 1 based on marked measurements)" in noisy
    assert "! 2 less trustworthy: 2 noisy" in noisy


def test_a_provider_has_its_colour_of_the_page_whoever_else_was_measured(make_record, svg):
    places = provider_places(["iree", "numpy", "torch"])
    for providers in (["torch"], ["iree", "numpy"]):
        picture = svg(*(make_record(NAME, provider=provider) for provider in providers))
        used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", picture.decode()))
        assert {p for p in places if COLOURS[places[p]] in used} == set(providers)


def test_a_speed_without_an_interval_has_a_bar_without_an_end(svg, make_record):
    alone = make_record(NAME, measured={"ci_low_ns": None, "ci_high_ns": None})
    ends = [svg(record).count(b"<use") for record in (make_record(NAME), alone)]
    assert ends[0] - ends[1] == 2, "the ends of the interval"


def test_nothing_measured_is_refused(few, svg):
    with pytest.raises(RequestError):
        svg(*(record for record in few.records if record.measurement is None))
