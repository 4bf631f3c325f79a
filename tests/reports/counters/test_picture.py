from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmetry.counters.api import diagnose
from gemmetry.counters.page import diagnosis_panels, roofline_picture
from gemmetry.domain.errors import RequestError

pytest.importorskip("matplotlib")

RAW = Path(__file__).parents[2] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"


def test_a_picture_has_kernels_verdicts_and_plain_numbers_and_is_the_same_each_time():
    launches = diagnose(RAW).groups()
    first = roofline_picture(diagnosis_panels(launches), "svg")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", first.decode())
    for text in ("The tensor pipe is at 90.4 %", "nvjet_sm90", "bf16 datasheet, 989 TFLOP/s"):
        assert any(text in one for one in texts), text
    assert "1000" in texts
    assert not any("$" in one for one in texts)
    assert roofline_picture(diagnosis_panels(launches), "svg") == first


def test_kernels_without_counted_operations_are_left_out():
    with pytest.raises(RequestError, match="operations of no kernel"):
        roofline_picture([("kernel", "text", [])], "png")
    (shown,) = diagnose(RAW).groups()
    picture = roofline_picture(
        diagnosis_panels([shown, replace(shown, roofline=None)]), "svg"
    ).decode()
    assert "operations were not counted: 1" in picture
