from __future__ import annotations

import itertools
import re
from importlib import resources

import pytest

from gemmetry.dispatches.figures import provider_places
from gemmetry.providers.base import builtin_names
from gemmetry.results.palette import COLOURS, DARK_COLOURS, colour_at, contrast, ink_on, log_ticks

READABLE = 4.5
"""WCAG 2.1, success criterion 1.4.3, of texts that are not large."""


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.005)
    assert contrast("#123456", "#123456") == 1


def test_a_text_can_be_read_on_every_colour_of_the_scale():
    shares = [step / 500 for step in range(501)]
    assert min(contrast(ink_on(c), c) for c in map(colour_at, shares)) >= READABLE
    grounds = [
        "#" + "".join(parts) for parts in itertools.product(("00", "4b", "80", "ff"), repeat=3)
    ]
    assert min(contrast(ink_on(ground), ground) for ground in grounds) >= READABLE


def test_a_provider_has_its_colour_whoever_else_was_measured():
    everybody = provider_places(builtin_names())
    assert len(set(everybody.values())) == len(everybody)
    for name in builtin_names():
        assert provider_places([name]) == {name: everybody[name]}
    theirs = provider_places(["theirs"])["theirs"]
    assert provider_places(["theirs", "torch"])["theirs"] in (theirs, theirs + 1)
    assert provider_places(["theirs", "torch"])["torch"] == everybody["torch"]
    # Colours are as many on a dark ground.
    assert len(DARK_COLOURS) == len(COLOURS) == len(set(COLOURS)) == len(set(DARK_COLOURS))


@pytest.mark.parametrize("dark", [False, True])
def test_texts_of_the_page_can_be_read_on_their_grounds(dark):
    style = resources.files("gemmetry.results").joinpath("templates/report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", blocks[1 if dark else 0]))
    texts = ("ink", "quiet", "accent", "good", "bad", "warn")
    pairs = [*itertools.product(texts, ("panel", "page", "soft")),
             *((text, f"{text}-soft") for text in ("good", "bad", "warn"))]  # fmt: skip
    faint = {pair: round(found, 2) for pair in pairs
             if (found := contrast(*(colours[name] for name in pair))) < READABLE}  # fmt: skip
    assert faint == {}


def test_a_logarithmic_axis_has_ticks():
    for high in (1.02, 1.6, 9.0, 100.0, 1e7):
        ticks = log_ticks(6.8, 6.8 * high)
        assert all(6.8 <= tick <= 6.8 * high for tick in ticks)
        assert ticks == sorted(ticks)
        assert high < 1.6 or 4 <= len(ticks) <= 12
