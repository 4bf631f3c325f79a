from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.reports.plots import render_picture

pytest.importorskip("matplotlib")


@pytest.fixture
def few(result_set):
    kept = [r for r in result_set.records if "_512x512x512_" in r.operation]
    return dataclasses.replace(result_set, records=kept)


def test_png_has_pixels_of_the_right_size(few):
    picture = render_picture(few, "png")
    width = int.from_bytes(picture[16:20], "big")
    height = int.from_bytes(picture[20:24], "big")
    assert picture.startswith(b"\x89PNG")
    assert width == 1080
    assert height > 1000


def test_svg_keeps_texts_and_hostile_titles_as_text(few):
    picture = render_picture(few, "svg")
    root = ElementTree.fromstring(picture)
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "demo <script>alert(1)</script>" in texts
    assert "Roofline: f32 on cpu" in texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_the_same_results_make_the_same_svg(few):
    assert render_picture(few, "svg") == render_picture(few, "svg")


def test_dollar_signs_are_no_mathematics(few):
    titled = dataclasses.replace(few, title="$1 and \\frac $2")
    assert b"$1 and \\frac $2" in render_picture(titled, "svg")


def test_nothing_measured_is_refused(few):
    failed = [r for r in few.records if r.measurement is None]
    with pytest.raises(RequestError, match="nothing to draw"):
        render_picture(dataclasses.replace(few, records=failed), "png")
