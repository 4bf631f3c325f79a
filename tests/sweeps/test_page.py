"""Pages about sweeps."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import re

import pytest

import gemmetry
from gemmetry.sweeps.page import sweep_page

pytest.importorskip("plotly")

HOSTILE = "<script>alert(1)</script>"


def plain(page):
    """The page without plotly, whose source holds addresses."""
    return page[: page.index("<script>", page.index('id="data"'))]


def test_a_checkout_that_is_not_installed_gives_its_version(documents, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
    assert f"gemmetry {gemmetry.__version__}" in sweep_page(documents[0])


def test_it_loads_nothing(compared_page, loads_nothing):
    loads_nothing(plain(compared_page))


def test_pictures_of_the_analysis_are_embedded(documents, tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "variance.png").write_bytes(b"picture")
    page = sweep_page(documents[0], tmp_path)
    assert f"data:image/png;base64,{base64.b64encode(b'picture').decode()}" in page
    assert '<section id="pictures"' in page


def test_names_are_text(documents):
    document = json.loads(json.dumps(documents[0]).replace("nvjet_sm90_tst_192x192", HOSTILE))
    document["problems"] = [HOSTILE]
    document["sweep"] = f"/x/{HOSTILE}"
    page = sweep_page(document)
    assert HOSTILE not in plain(page)
    assert "&lt;script&gt;" in page


def test_records_of_nccl_stand_next_to_the_collectives(documents):
    assert 'id="records-of-NCCL"' not in sweep_page(documents[0])
    point = documents[0]["points"][0] | {
        "nccl_records": [
            {"op": "all_gather", "bytes": 1 << 25, "group_size": 2, "count": 12, "channels": 4,
             "latency_us": 261.5, "busbw_gbps": 64.2, "traced_latency_us": 260.0}
        ]
    }  # fmt: skip
    page = sweep_page(documents[0] | {"points": [point]})
    row = re.search(r'id="records-of-NCCL".*?<tbody>(.*?)</tbody>', page, re.DOTALL)[1]
    for text in ("all-gather", "32 MiB", "261.5", "64.2", "260.0"):
        assert f">{text}<" in row
