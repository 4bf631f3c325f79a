from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmetry.traces.page import trace_page

RANK0 = "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"


def test_the_page_asks_for_nothing(job_report, loads_nothing):
    loads_nothing(trace_page(job_report))


def _open(browser, report, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(trace_page(report), encoding="utf-8", errors="replace")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    assert browser.get_log("browser") == []


@pytest.mark.browser
def test_the_timeline_is_drawn_and_zooms(browser, report_of, tmp_path, scripts):
    from selenium.webdriver.common.keys import Keys

    _open(browser, report_of(RANK0), tmp_path)
    drawn = browser.execute_script(scripts["pixels of each colour"])
    assert all(drawn[name] > 50 for name in ("gemm", "communication", "idle")), drawn
    canvas = browser.find_element("id", "timeline")
    before = canvas.get_attribute("data-drawn")
    canvas.send_keys("+")
    start, end = map(float, canvas.get_attribute("data-drawn").split(":"))
    whole = float(before.split(":")[1])
    assert end - start == pytest.approx(whole / 2)
    canvas.send_keys(Keys.ARROW_LEFT)
    assert float(canvas.get_attribute("data-drawn").split(":")[0]) < start
    canvas.send_keys("0")
    assert canvas.get_attribute("data-drawn") == before


@pytest.mark.browser
def test_hints_and_the_search(browser, report_of, tmp_path, scripts):
    from selenium.webdriver.common.keys import Keys

    ranks = [RANK0, RANK0.replace("rank0", "rank1")]
    _open(browser, report_of(*ranks), tmp_path)
    assert browser.execute_script(scripts["point at the timeline"], 0, 0.5).startswith("step 3\n")
    # Of a GEMM in the middle of the first rank's first stream.
    hint = browser.execute_script(scripts["point at the timeline"], 1, 0.25)
    assert re.search(r"16384x\d+x\d+ bf16 tn · \d+ TFLOP/s\naten::(add)?mm\n", hint), hint
    hint = browser.execute_script(scripts["point at the timeline"], 2, 0.1)
    assert re.search(r"all_gather · 384 MiB BFloat16 · 4 ranks\n", hint), hint
    box = browser.find_element("id", "timeline-search")
    box.send_keys("16384x12288")
    found = browser.find_element("id", "timeline-found")
    assert re.fullmatch(r"4 of \d+, 9\.03 ms", found.text), found.text
    colours = browser.execute_script(scripts["pixels of each colour"])
    assert colours["communication"] == 0 < colours["gemm"]
    box.send_keys(Keys.ENTER)
    assert found.text.startswith("1 of 4: nvjet_")
    box.send_keys(Keys.SHIFT, Keys.ENTER, Keys.NULL)
    assert found.text.startswith("4 of 4: nvjet_")
    box.clear()
    box.send_keys("aten::gelu", Keys.ENTER)
    assert found.text.startswith("1 of 3: vectorized_elementwise_kernel")
    start, end = browser.find_element("id", "timeline").get_attribute("data-drawn").split(":")
    assert float(start) > 0
    assert 10e6 < float(end) - float(start) < 20e6
    box.clear()
    box.send_keys("no such kernel")
    assert found.text.startswith("0 of ")


@pytest.mark.browser
def test_operators_of_the_host_are_drawn(browser, report_of, tmp_path, scripts):
    from selenium.webdriver.support.ui import Select

    _open(browser, report_of("cpu_grid"), tmp_path)
    assert browser.execute_script(scripts["pixels of each colour"])["gemm"] > 1000
    choice = Select(browser.find_element("id", "timeline-group"))
    assert len(choice.options) == 3
    before = browser.find_element("id", "timeline").get_attribute("data-drawn")
    choice.select_by_index(2)
    assert browser.find_element("id", "timeline").get_attribute("data-drawn") != before


_LINES = Path(__file__).parents[0].joinpath("hostile.txt").read_text().splitlines()
SCRIPTS = [line.replace("\\u2028", "\u2028").replace("\\u2029", "\u2029") for line in _LINES]


IMAGE = "<img src=x onerror=document.title='owned'>"


@pytest.fixture
def hostile_job(report_named):
    """Makes a report with scripts for names, of kernels or of operators."""
    file = f"{IMAGE}{SCRIPTS[4][:20]}"
    broken = "<script>document.title='owned'</script>"
    return lambda with_gpu: report_named(SCRIPTS, with_gpu=with_gpu, file=file, broken=broken)


def test_scripts_in_every_place_that_has_a_name_are_text(hostile_job, elements):
    for with_gpu in (True, False):
        found = elements(trace_page(hostile_job(with_gpu)))
        assert [attrs for tag, attrs in found if tag == "script"] == [
            {"type": "application/json", "id": "data"}, {}, {}
        ]  # fmt: skip
        tags = {tag for tag, _ in found}
        assert not tags & {"img", "iframe", "base", "form", "object", "embed", "textarea"}
        assert [attrs.get("http-equiv") for tag, attrs in found if tag == "meta"].count(
            "Content-Security-Policy"
        ) == 1
        assert not [name for _, attrs in found for name in attrs if name.startswith("on")]


@pytest.mark.browser
@pytest.mark.parametrize("with_gpu", [True, False], ids=["kernels", "operators"])
def test_scripts_in_every_place_that_has_a_name_do_not_run(
    browser, hostile_job, tmp_path, with_gpu, scripts
):
    """Also where the page's own rule against foreign scripts would not stop them."""
    report = hostile_job(with_gpu)
    for rule in (True, False):
        page = trace_page(report)
        if not rule:
            page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
            assert "Content-Security-Policy" not in page
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        browser.get_log("browser")
        browser.get(path.as_uri())
        title = browser.title
        assert title == f"{tmp_path.name}: 2 traces – gemmetry"
        assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
        shown = browser.execute_script(scripts["touch everything"])
        assert any("document.title" in text for text in shown)
        assert browser.title == title
        assert browser.execute_script("return ({}).title") is None
        count = "return [...document.scripts].filter((s) => s.type !== 'application/json').length"
        assert browser.execute_script(count) == 2
        elements = "return document.querySelectorAll('img, iframe, base, object, embed').length"
        assert browser.execute_script(elements) == 0
        assert browser.get_log("browser") == []


@pytest.mark.browser
def test_a_window_of_years_is_drawn_at_every_zoom(browser, report_of, tmp_path, scripts):
    """Steps of the axis that are too small for a number of 52 bits would never end."""
    place = {"ph": "X", "cat": "kernel", "name": "k", "dur": 5, "args": {"device": 0, "stream": 7}}
    path = tmp_path / "years.json"
    path.write_text(json.dumps({"traceEvents": [{**place, "ts": 0}, {**place, "ts": 4 * 10**15}]}))
    browser.set_page_load_timeout(60)
    browser.set_script_timeout(60)
    _open(browser, report_of(path), tmp_path)
    start, end = map(float, browser.execute_script(scripts["zoom in 80 times"]).split(":"))
    assert 0 < end - start < 1e9


@pytest.mark.browser
def test_a_narrow_page_keeps_words_and_numbers_whole(browser, job_report, tmp_path, scripts):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    _open(browser, job_report, tmp_path)
    broken, hidden, headless = browser.execute_script(scripts["broken cells of traces"])
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert broken == []
    assert (hidden, headless) == (0, 0)


@pytest.mark.browser
def test_moments_are_saved_as_traces(browser, report_of, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    report = report_of("straggler_h200")
    assert report.moments
    _open(browser, report, tmp_path)
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    links = browser.find_elements("css selector", ".moments a")
    assert [link.text for link in links] == [one.what for one in report.moments]
    for link, moment in zip(links, report.moments, strict=True):
        browser.execute_script("arguments[0].click()", link)
        saved = tmp_path / moment.name  # the browser writes it after the click
        WebDriverWait(browser, 10).until(
            lambda _, saved=saved, moment=moment: (
                saved.exists() and saved.read_bytes() == moment.content
            )
        )


@pytest.mark.parametrize("place", [RANK0, "straggler_h200", "collectives/h200x4"])
def test_a_moment_holds_the_work_of_its_interval(report_of, tmp_path, place):
    report = report_of(place)
    assert report.moments
    for moment in report.moments:
        (tmp_path / moment.name).write_bytes(moment.content)
        rows = report_of(tmp_path / moment.name).lanes
        lanes = [lane for lane in report.lanes if lane.file == str(moment.file)]
        base = min(one.base_ns for job in report.jobs for one in job.job.ranks
                   if one.file == moment.file)  # fmt: skip
        low, high = moment.start_ns + base, moment.start_ns + base + moment.length_ns

        def work(found, low=low, high=high):
            return sorted(
                (int(start), int(length), lane.works[number].name, lane.device, lane.stream)
                for lane in found
                for start, length, number in zip(
                    lane.start_ns, lane.duration_ns, lane.work, strict=True
                )
                if start < high and start + length > low
            )

        assert work(lanes) or "idle" in moment.what
        assert work(rows) == work(lanes)
