"""What is shown of histories: texts, files and the static site, whose names are no markup."""

from __future__ import annotations

import itertools
import json
import math
import re

import msgspec
import pytest

from gemmetry.domain.errors import StorageError
from gemmetry.history.api import load
from gemmetry.history.folder import SCHEMA, Annotation, StoredHistory
from gemmetry.history.rows import check_document, check_junit, check_markdown
from gemmetry.history.show import BARS, print_check, sparkline, write_site
from gemmetry.results.palette import contrast

HOSTILE = "</script><img src=x onerror=alert(1)>"


def checked(histories, runs, annotations=(), latest=10):
    stored = StoredHistory(
        runs={histories.DEVICE: runs}, annotations=list(annotations), problems=["x.jsonl:3 <b>"]
    )
    return load(stored, latest=latest, threshold=0.02)


@pytest.fixture
def site(histories, tmp_path):
    """The site of 60 series, with a slower kernel that has a remark."""
    synthetic = histories.SyntheticHistory(shapes=20, runs=60)
    synthetic.slow(1.1, 52, provider="triton", shape=1)
    synthetic.slow(1.06, 15)
    synthetic.lost = {("iree", 3, 59)}
    remark = Annotation(schema=SCHEMA, run="run000000034", pattern="triton:*", text="being <i>seen")
    write_site(
        checked(histories, synthetic.entries(), [remark]), tmp_path / "site", "Nights & days"
    )
    return tmp_path / "site"


def test_a_check_is_shown_as_reviewed(
    histories, site, console_text, page_text, page_data, dumped, golden
):
    """Changes that dispatches share are one row; a lost dispatch is an alarm; noise is counted."""
    synthetic = histories.SyntheticHistory(shapes=5, runs=60, noise=0.001, host_noise=0.001)
    synthetic.slow(1.06, 20)
    synthetic.slow(1.1, 50, provider="iree", shape=3)
    synthetic.slow(1.1, 50, provider="triton", shape=2)
    synthetic.slow(1.01, 50, provider="triton", shape=4)
    synthetic.lost = {("iree", 0, 59)}
    check = checked(histories, synthetic.entries(), latest=15)
    document = check_document(check)
    page = (site / "index.html").read_text()
    changed = [one for one in page_data(page)["series"] if len(one["changes"]) == 2]
    printed = console_text(lambda console: print_check(check, console))
    parts = [printed, check_markdown(check), check_junit(check).decode(),
             dumped(*document.pop("changes"), document), page_text(page),
             dumped(*changed)]  # fmt: skip
    golden("history", "\f\n".join(parts))


def test_points_are_in_scripts_next_to_the_page(site, histories):
    files = sorted(path.name for path in (site / "points").iterdir())
    assert files == ["0.js", "1.js"]
    text = (site / "points" / "1.js").read_text()
    number, points = re.fullmatch(r"gemmetryPoints\((\d+),(.*)\);\n", text).groups()
    series = json.loads(points)
    assert (number, len(series)) == ("1", 10)
    assert series[0]["runs"] == list(range(60))
    assert len(series[0]["ns"]) == 60
    assert series[0]["low"][0] == -20, "0.2 % below the median"
    assert series[0]["high"][0] == 20


def test_nothing_comes_from_the_network(site, loads_nothing):
    page = (site / "index.html").read_text()
    loads_nothing(page)
    assert set(re.findall(r"https?://[^\s\"'`)]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_no_name_becomes_markup(histories, tmp_path, page_data):
    runs = histories.SyntheticHistory(shapes=1, runs=20).entries()
    hostile = [
        msgspec.structs.replace(
            run, label=HOSTILE, commit=HOSTILE,
            points=[msgspec.structs.replace(p, dispatch=HOSTILE, operation=HOSTILE)
                    for p in run.points],
        )
        for run in runs
    ]  # fmt: skip
    write_site(checked(histories, hostile), tmp_path, HOSTILE)
    page = (tmp_path / "index.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert page_data(page)["series"][0]["name"] == f"torch:{HOSTILE}"
    assert "<" not in (tmp_path / "points" / "0.js").read_text()


def test_a_folder_that_cannot_be_written_is_an_error(histories, tmp_path):
    (tmp_path / "file").write_text("")
    check = checked(histories, histories.SyntheticHistory(shapes=1, runs=6).entries())
    with pytest.raises(StorageError, match="cannot write"):
        write_site(check, tmp_path / "file", "GEMM history")


@pytest.fixture
def phone(browser):
    """A screen of 390 pixels."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


DRAWN = "return document.querySelectorAll('#detail svg circle').length"


def open_with_a_series(browser, site):
    """The page, with the first series of the changes drawn."""
    browser.get(f"file://{site}/index.html")
    browser.execute_script("document.querySelector('#changes a[data-series]').click()")
    for _ in range(100):
        if browser.execute_script(DRAWN):
            return
        browser.execute_async_script("setTimeout(arguments[0], 50)")
    raise AssertionError("no series was drawn")


@pytest.mark.browser
def test_the_trends_are_drawn_in_a_browser_with_round_labels(site, browser):
    open_with_a_series(browser, site)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    assert browser.execute_script(DRAWN) == 59, "the last run lost it"
    assert browser.execute_script("return document.querySelectorAll('.trend').length") == 40
    browser.find_element("id", "filter").send_keys("triton 128x")
    count = browser.execute_script("return document.getElementById('count').textContent")
    assert count == "1 of 60"
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#detail svg text')].map((one) => one.textContent)"
    )
    times = [float(one.split()[0]) for one in labels if one.endswith("s") and one[0].isdigit()]
    assert 3 <= len(times) <= 6
    (step,) = {round(later - earlier, 9) for earlier, later in itertools.pairwise(times)}
    assert f"{step:e}"[:8] in ("1.000000", "2.000000", "5.000000")


@pytest.mark.browser
def test_nothing_is_wider_than_a_phone(site, phone, scripts):
    open_with_a_series(phone, site)
    wide = phone.execute_script(scripts["wider than a phone"])
    assert wide == []
    assert phone.execute_script("return document.documentElement.scrollWidth") == 390


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_are_those_that_the_reader_prefers(site, browser, scheme, scripts):
    """Texts have the contrast of 4.5 that WCAG 2.1 requires, on a background of the scheme."""
    prefers = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", prefers)
    try:
        open_with_a_series(browser, site)
        found = browser.execute_script(scripts["colours of texts"])
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(found) > 100
    backgrounds = {sum(rgb(background)) / 3 for _, background, _ in found}
    assert all((one > 128) == (scheme == "light") for one in backgrounds)
    assert [one for one in found if contrast(hexed(one[0]), hexed(one[1])) < 4.5] == []


def rgb(colour):
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def hexed(colour):
    return "#" + "".join(f"{part:02x}" for part in rgb(colour))


def test_a_line_of_bars_spans_its_values():
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == BARS
    assert sparkline([5.0] * 4, 8) == BARS[0] * 4
    assert sparkline([1.0, math.nan, 2.0], 8) == f"{BARS[0]}·{BARS[-1]}"
    assert sparkline([], 8) == ""
    assert sparkline([math.nan] * 3, 8) == "···"
    # Neighbours share a bar where there are too many.
    assert sparkline([1.0] * 50 + [2.0] * 50, 10) == BARS[0] * 5 + BARS[-1] * 5
    assert len(sparkline(list(range(1000)), 33)) == 33
