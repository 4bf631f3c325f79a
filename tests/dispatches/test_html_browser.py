"""The HTML report in a real browser: headless Chromium, driven by selenium."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from functools import partial

import pytest

from gemmetry.dispatches.results import write
from gemmetry.domain.record import ResultSet
from gemmetry.results.palette import colour_at, contrast

pytest.importorskip("plotly")

pytestmark = pytest.mark.browser

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report_file(result_set, tmp_path_factory):
    """Its script's library makes a page of megabytes, so it is written once."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(result_set, path)
    return path


@pytest.fixture
def page(browser, report_file):
    browser.get_log("performance")
    browser.get(report_file.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    return browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def same_page(browser, report_file):
    """The page for tests that only look at it: those in turn have it loaded once."""
    if browser.current_url != f"{report_file.as_uri()}?same":
        browser.get(f"{report_file.as_uri()}?same")
    return browser


@pytest.fixture
def page_of(browser, folder):
    """The page of `results`, written and loaded unless it is shown already."""

    def show(results, **options):
        path = folder / f"{results.title}.html"
        if not path.exists():
            write(results, path, **options)
        if browser.current_url != path.as_uri():
            browser.get(path.as_uri())
        return browser

    return show


@pytest.fixture
def js(browser):
    """The value of an expression in the page."""
    return lambda expression, *values: browser.execute_script(f"return {expression}", *values)


@pytest.fixture
def column(browser, scripts):
    """The shown texts of a column, top to bottom."""
    return lambda key: browser.execute_script(scripts["cells of a column"], key)


@pytest.fixture
def enter(browser, scripts):
    """Gives a field a value."""
    return lambda field, value: browser.execute_script(scripts["set a field"], field, value)


def _assert_count(page, text):
    """The page filters a moment after the event that asks for it, so the count is waited for."""
    deadline = time.monotonic() + 120
    script = "return document.getElementById('count').textContent"
    while (count := page.execute_script(script)) != text and time.monotonic() < deadline:
        time.sleep(0.02)
    assert count == text


def test_sorting_by_speed_both_ways_and_by_name(page, column):
    head = page.find_element("css selector", "#table th[data-key=gflops] button")
    head.click()
    texts = column("gflops")
    shown = [float(text.replace(",", "")) for text in texts if text != "–"]
    assert len(shown) == 152
    assert shown == sorted(shown, reverse=True)
    assert texts[-1] == "–"
    assert head.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    head.send_keys("\n")  # the keyboard does the same
    texts = column("gflops")
    assert [float(t.replace(",", "")) for t in texts if t != "–"] == sorted(shown)
    assert texts[-1] == "–"
    page.find_element("css selector", "#table th[data-key=provider] button").click()
    providers = column("provider")
    assert providers == sorted(providers)


def test_filters_narrow_the_table_and_reset_restores_it(page, result_set, column, enter):
    total = len(result_set.records)
    _assert_count(page, f"{total} of {total}")
    enter("filter-provider", "numpy")
    expected = sum(r.provider == "numpy" for r in result_set.records)
    _assert_count(page, f"{expected} of {total}")
    assert set(column("provider")) == {"numpy"}
    enter("filter-dtypes", "s8→s32")
    _assert_count(page, f"2 of {total}")
    page.find_element("css selector", ".filters button[type=reset]").click()
    _assert_count(page, f"{total} of {total}")
    enter("filter-text", "IREE 257×129×65 bf16")
    _assert_count(page, f"5 of {total}")
    enter("filter-text", "")
    enter("filter-outcome", "timeout")
    assert column("outcome") == ["timeout"]
    enter("filter-text", "nothing matches this")
    _assert_count(page, f"0 of {total}")
    body = page.find_element("css selector", "#table tbody").text
    assert body == "No dispatch matches the filter."


def test_a_rows_details_open_from_the_keyboard(page):
    page.find_element("css selector", "#table .expand").send_keys("\n")
    details = page.find_element("css selector", "#table tr.details").text
    assert "matmul_128x128x512_f32t_f32t_f32t_tile_128x128_16" in details
    assert "max error ratio" in details
    assert "could not apply\nred_zones: host" in details
    page.switch_to.active_element.send_keys("\n")
    assert page.find_elements("css selector", "#table tr.details") == []


def test_a_sparse_grid_of_sizes_has_no_heat_map_but_configurations(make_record, page_of, js):
    records = [
        make_record(f"matmul_{n}x{n}x{n}_f32t_f32t_f32t", name, provider=provider, gflops=speed)
        for n in (64, 128, 256)
        for provider, name, speed in (("torch", "default", 50.0), ("iree", "tile", 100.0))
    ]
    page_of(ResultSet(title="sparse", records=records))
    hidden = "[...document.querySelectorAll('[data-figure=heat]')].map((e) => e.hidden)"
    assert js(hidden) == [True, True]
    grid = js("document.getElementById('plot-grid').data[0]")
    assert grid["z"] == [[1, 1, 1], [0.5, 0.5, 0.5]]
    assert grid["text"][1] == ["50 %"] * 3


def test_choosing_redraws_the_plots(page, enter, js):
    ticks = "[...document.querySelectorAll('#plot-speed .ytick text')].map((t) => t.textContent)"
    assert len(js(ticks)) == 21
    enter("speed-select", "1")
    assert js(ticks) == ["257×129×65", "512×512×512"]
    enter("baseline-select", "iree")
    title = js("document.querySelector('#plot-baseline .xtitle').textContent")
    assert title == "× iree, right is faster"


def test_a_configuration_can_be_the_baseline(result_set, page_of, enter, js):
    page_of(dataclasses.replace(result_set, title="default"), baseline="iree:default")
    assert js("document.getElementById('baseline-select').value") == "iree:default"
    shown = js("document.getElementById('plot-baseline').data.map((one) => [one.name, one.x])")
    assert [name for name, _ in shown] == ["iree", "numpy", "torch"]
    # Its best tile has 1.25 times the speed of torch, its default 0.6 times; convolutions and split
    # products have no other configuration.
    ratios = sorted(ratio for ratio in shown[0][1] if ratio is not None)
    assert ratios == pytest.approx([1.0] * 2 + [1.25 / 0.6] * 17)
    enter("baseline-select", "iree")
    names = js("document.getElementById('plot-baseline').data.map((one) => one.name)")
    assert names == ["numpy", "torch"]


@pytest.mark.parametrize("samples", [[5000.0, 5200.0, 4900.0] * 20, [5000.0]])
def test_doubts_about_a_speed_are_in_its_row(js, make_record, page_of, samples, column):
    """Marks, differences that are not shown, and missing intervals."""
    single = len(samples) == 1
    none = {"ci_low_ns": None, "ci_high_ns": None, "sample_count": 1}
    records = [make_record("matmul_64x64x64_f32t_f32t_f32t", provider=provider, gflops=50.0,
                           marks=() if single else ("noisy: x",), measured=none if single else {})
               for provider in ("torch", "numpy")]  # fmt: skip
    page_of(ResultSet(title=f"doubts {single}", records=records, samples=lambda _: samples))
    sign = "≷" if single else "≈"
    assert sorted(column("ratio")) == ["1.00×", f"1.00×{sign}"]
    assert all(text == "n/a" if single else text.endswith("!") for text in column("half"))
    bars = js("document.getElementById('plot-speed').data.map((one) => one.text[0])")
    assert all(text.endswith("<br>! noisy") is not single for text in bars)
    assert (js("document.querySelectorAll('#plot-speed .xerror').length") == 0) is single


@pytest.fixture
def wide_page(make_record, page_of):
    """With configurations as long as IREE's, and a baseline with a long name."""
    records = [
        make_record(f"matmul_{size}_bf16t_bf16t_f32t", configuration, provider="iree",
                    gflops=100.0 + i, marks=("noisy: interval ±93 %",))
        for size in ("257x129x65", "512x512x512")
        for i, configuration in enumerate(("default", "tile_config_128x128_vector8x32x4",
                                           "tile_config_128x128_vector4x64x1"))
    ]  # fmt: skip
    return page_of(ResultSet(title="wide", records=records), baseline="iree:default")


_TILES = ("64x64_cache64x64x64_vector8x32x1", "64x64_cache32x64x64_vector8x32x1",
          "64x64_vector8x32x1", "32x32_vector4x16x4")  # fmt: skip


@pytest.fixture
def tiles_page(make_record, page_of):
    """With configurations whose names differ in the middle."""
    records = [
        make_record(f"matmul_{size}x64x64_f32t_f32t_f32t", f"tile_config_{tile}", provider="iree",
                    gflops=10.0**i)
        for size in (64, 128) for i, tile in enumerate(_TILES)
    ]  # fmt: skip
    return page_of(ResultSet(title="tiles", records=records))


LAYOUT = re.compile(r"layout (\w+) ([\d,]+): ")
"""Of a script of ``browser.js``: the page, and the widths at which it has to be true."""


def _at_width(page, width, *scripts):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    found = [page.execute_script(one) for one in scripts]
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


@pytest.mark.parametrize("which", ["report", "wide", "tiles"])
def test_the_layout(which, request, scripts):
    page = request.getfixturevalue({"report": "same_page"}.get(which, f"{which}_page"))
    names = {}
    for name, found in ((name, LAYOUT.match(name)) for name in scripts):
        for width in found[2].split(",") if found and found[1] == which else ():
            names.setdefault(width, []).append(name)
    assert len({name for own in names.values() for name in own}) >= 2
    bad = []
    for width, own in names.items():
        results = _at_width(page, int(width), *(scripts[name] for name in own))
        bad += [(name, width) for name, is_good in zip(own, results, strict=True) if not is_good]
    assert bad == []


def test_the_heat_maps_names_are_distinguished(tiles_page):
    script = """
    dispatchEvent(new Event('beforeprint')); // draws all plots again, at this width
    return document.getElementById('plot-grid').layout.yaxis.ticktext;
    """
    for width in (400, 700, 1400):
        (ticks,) = _at_width(tiles_page, width, script)
        names = [tick.replace("<br>", "").removeprefix("iree").strip() for tick in ticks]
        assert set(names) == set(_TILES)


def test_texts_of_a_heat_map_can_be_read_on_their_cells(tiles_page):
    shown = tiles_page.execute_script(
        """
        return [...document.querySelectorAll('#plot-grid .heatmap-label text, #plot-grid .hm text')]
          .filter((text) => text.textContent.trim())
          .map((text) => [text.textContent, getComputedStyle(text).fill]);
        """
    )
    assert len(shown) == 2 * len(_TILES)
    for text, fill in shown:
        cell = colour_at(float(text.removesuffix(" %")) / 100)
        ink = "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", fill)[:3])
        assert contrast(ink, cell) >= 4.5, (text, ink, cell)


def test_names_are_broken_into_lines_and_lose_nothing(same_page, js):
    broken = partial(js, "brokenText(arguments[0], arguments[1])")
    assert broken("iree 64x64_vector8x32x1", 20) == ["iree 64x64_", "vector8x32x1"]
    assert broken("short", 20) == ["short"]
    assert broken("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert broken("a" * 6 + "_" + "b" * 12, 10) == ["a" * 6 + "_", "b" * 10, "b" * 2]
    assert broken("1×56×56×64 ∗ 3×3×128", 10) == ["1×56×56×64", "∗ 3×3×128"]


def test_many_operations_are_shown_in_parts(browser, js, make_record, page_of, column):
    names = [f"matmul_{n}x8x8_f32t_f32t_f32t" for n in range(1, 91)]
    records = [make_record(name, f"c{i}") for name in names for i in range(4)]
    page_of(ResultSet(title="many", records=records))
    choices = js("[...document.getElementById('speed-select').options].map((o) => o.text)")
    assert choices == [f"f32 on cpu, operations {part} of 90" for part in
                       ("1 to 40", "41 to 80", "81 to 90")]  # fmt: skip
    assert len(column("provider")) == 300
    browser.find_element("id", "show-all").send_keys("\n")
    assert len(column("provider")) == 360


def test_console_is_silent_and_nothing_is_requested_from_the_network(page):
    assert [entry for entry in page.get_log("browser") if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    requested = [one["request"]["url"] for one in sent]
    assert requested
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []


def test_hostile_names_stay_text(page, enter, js):
    assert page.find_element("css selector", "h1").text == f"demo {HOSTILE}"
    assert js("[...document.scripts].every((one) => one.textContent.trim() !== 'alert(1)')")
    crash = page.find_element("xpath", "//details[contains(., 'SIGSEGV')]/summary")
    assert HOSTILE in crash.text
    enter("filter-outcome", "crash")
    page.find_element("css selector", "#table .expand").send_keys("\n")
    details = page.find_element("css selector", "#table tr.details").text
    assert f"note: {HOSTILE}" in details
    assert page.find_elements("css selector", "#table script") == []


def test_cells_of_a_column_have_equal_decimals(same_page, column):
    for key in ("gflops", "roofline", "half", "ratio"):
        cells = [text for text in column(key) if text != "–"]
        digits = {len(text.split()[0].rstrip("×≈").partition(".")[2]) for text in cells}
        assert len(digits) == 1, (key, digits)


def test_dark_scheme_has_light_text_on_dark_ground(same_page):
    for features, is_light in (
        ([], [False, True]),
        ([{"name": "prefers-color-scheme", "value": "dark"}], [True, False]),
    ):
        same_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        colours = same_page.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
        same_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        parts = [map(int, re.findall(r"\d+", colour)[:3]) for colour in colours]
        assert [sum(part) / 3 > 128 for part in parts] == is_light
