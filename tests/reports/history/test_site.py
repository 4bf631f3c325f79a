"""The static site: what is in its files, and that no name becomes markup."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from gemmetry.analysis.history.checking import check_history
from gemmetry.domain.errors import StorageError
from gemmetry.reports.history.site import write_site
from gemmetry.store.history.entries import SCHEMA, Annotation
from gemmetry.store.history.folder import StoredHistory

HOSTILE = "</script><img src=x onerror=alert(1)>"


def checked(histories, runs, annotations=()):
    stored = StoredHistory(
        runs={histories.DEVICE: runs}, annotations=list(annotations), problems=["x.jsonl:3 <b>"]
    )
    return check_history(stored, latest=10, threshold=0.02)


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


def data_of(page: str):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_answers_what_changed(site):
    page = (site / "index.html").read_text()
    assert "<title>Nights &amp; days</title>" in page
    for part in ("health", "changes", "trends", "board", "latest"):
        assert f'id="{part}"' in page
    assert "1 alarm<" in page, "the dispatch that was lost; the slower kernel is acknowledged"
    assert "it was ok and is crash now" in page
    assert "being &lt;i&gt;seen" in page
    assert "x.jsonl:3 &lt;b&gt;" in page
    together = max(int(count) for count in re.findall(r" and (\d+) more<", page))
    assert together >= 40, "what all dispatches share is one row"
    data = data_of(page)
    assert len(data["series"]) == 60
    [changed] = [one for one in data["series"] if len(one["changes"]) == 2]
    assert changed["name"] == "triton:matmul_128x256x256_bf16t_bf16t_f32t_default"
    assert [change["cause"] for change in changed["changes"]] == ["host", "kernel"]
    assert changed["changes"][1]["remarks"] == ["being <i>seen"]


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


def test_nothing_comes_from_the_network(site):
    page = (site / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page) == []
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\s\"'`)]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_no_name_becomes_markup(histories, tmp_path):
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
    assert data_of(page)["series"][0]["name"] == f"torch:{HOSTILE}"
    assert "<" not in (tmp_path / "points" / "0.js").read_text()


def test_a_folder_that_cannot_be_written_is_an_error(histories, tmp_path):
    (tmp_path / "file").write_text("")
    check = checked(histories, histories.SyntheticHistory(shapes=1, runs=6).entries())
    with pytest.raises(StorageError, match="cannot write"):
        write_site(check, tmp_path / "file", "GEMM history")


@pytest.mark.browser
def test_the_trends_are_drawn_in_a_browser(site, browser):
    browser.get(f"file://{site}/index.html")
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"
    drawn = "return document.querySelectorAll('#detail svg circle').length"
    for _ in range(100):
        if browser.execute_script(drawn):
            break
        browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert browser.execute_script(drawn) == 60
    assert browser.execute_script("return document.querySelectorAll('.trend').length") == 40
    browser.find_element("id", "filter").send_keys("triton 128x")
    assert browser.execute_script("return document.getElementById('count').textContent") == (
        "1 of 60"
    )
