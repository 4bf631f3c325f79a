"""Pages about sweeps in a real browser."""

from __future__ import annotations

import pytest

pytest.importorskip("plotly")

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def page_file(compared_page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "compared.html"
    path.write_text(compared_page)
    return path


@pytest.fixture(scope="module", params=[1400, 700])
def page(browser, page_file, request):
    browser.set_window_size(request.param, 1000)
    browser.get(page_file.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    yield browser
    browser.set_window_size(1400, 1000)


def test_every_figure_is_drawn_without_messages_and_fits(page):
    drawn = page.execute_script(
        "return [...document.querySelectorAll('[data-figure]')]"
        ".map((one) => one.querySelectorAll('.main-svg').length > 0)"
    )
    assert drawn
    assert all(drawn)
    # Chrome itself advises on canvases, depending on what it drew before.
    found = [entry for entry in page.get_log("browser") if entry["source"] != "rendering"]
    assert [entry for entry in found if entry["level"] != "INFO"] == []
    assert page.execute_script("return document.body.scrollWidth <= innerWidth")


def test_a_heading_sorts_its_table(page, scripts):
    script = scripts["sort GEMMs"]
    descending = page.execute_script(script)
    assert descending == sorted(descending, reverse=True)
    assert len(set(descending)) > 1
    ascending = page.execute_script(script)
    assert ascending == sorted(ascending)


def test_the_filter_hides_other_rows(page, scripts):
    shown = page.execute_script(scripts["filter GEMMs"])
    assert shown
    assert all("512 threads" in text for text in shown)
