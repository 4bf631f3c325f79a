"""Pages and texts as their readers see them: parsed, without colours, or in headless Chromium."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

import gemmetry

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
    "--disable-dev-shm-usage", "--window-size=1400,1000",
)  # fmt: skip


@pytest.fixture(name="console_text")
def console_text_fixture():
    """What a printer writes without colours; what is for a terminal fits its width."""

    def run(print_to, width: int = 80, *, terminal=False) -> str:
        console = Console(width=width, file=io.StringIO(), color_system=None,
                          force_terminal=terminal, highlight=False)  # fmt: skip
        print_to(console)
        lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
        assert not terminal or max(map(len, lines)) <= width
        return "\n".join(lines) + "\n"

    return run


_HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>", re.DOTALL)


_BREAKS = re.compile(r"</(?:tr|p|h\d|li|div|section|summary|pre|ul|title|figcaption|dd)>")


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(name="dumped", scope="session")
def dumped_fixture():
    """The values as lines of JSON, with floats of five digits."""

    def run(*values) -> str:
        return "".join(f"{json.dumps(_rounded(one), ensure_ascii=False)}\n" for one in values)

    return run


@pytest.fixture(name="page_data", scope="session")
def page_data_fixture():
    """The data that a page's scripts read."""
    return lambda page: json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(name="page_text", scope="session")
def page_text_fixture():
    """The texts of a page's elements, each after its class; without scripts and styles."""

    def run(page: str) -> str:
        body = _BREAKS.sub("\n", _HIDDEN.sub("", page))
        body = re.sub(r"<svg\b.*?</svg>|<wbr>", "", body, flags=re.DOTALL)
        body = re.sub(r'<\w+\b[^>]*?\bclass="([^"]*)"[^>]*>', r" .\1. ", body)
        lines = (" ".join(line.split()) for line in re.sub(r"<[^>]*>", " ", body).splitlines())
        text = html.unescape("".join(f"{line}\n" for line in lines if line))
        return text.replace(f"gemmetry {gemmetry.__version__}", "gemmetry {version}")

    return run


@pytest.fixture(scope="session")
def elements():
    """The elements of a page: tags with their attributes."""

    def parse(page):
        found = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
        parser.feed(page)
        return found

    return parse


@pytest.fixture(scope="session")
def loads_nothing(elements):
    """Asserts that a page asks neither the network nor other files for anything."""

    def check(page):
        for tag, attributes in elements(page):
            assert tag not in ("iframe", "object", "embed", "base")
            for name in ("src", "href", "action"):
                assert (attributes.get(name) or "#").startswith(("#", "data:"))
        assert "default-src 'none'" in page
        assert "@import" not in "".join(re.findall("<style.*?</style>", page, re.DOTALL))

    return check


@pytest.fixture(scope="session")
def scripts():
    """The scripts of ``browser.js`` by name."""
    text = Path(__file__).with_name("browser.js").read_text("utf-8")
    shared, *parts = re.split(r"^// == (.+)$", text, flags=re.MULTILINE)
    return {name: shared + body for name, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Headless Chromium, driven by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    running = webdriver.Chrome(options=options, service=service)
    yield running
    running.quit()
