"""Lists and folders as the old scripts write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.cli.sweep import _joined, parse_numbers, sweep_folders
from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.options import parse_counts


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["--channels", "28", "42", "--top-k", "5"], ["--channels", "28,42", "--top-k", "5"]),
        (["--threads", "256,512", "sweep"], ["--threads", "256,512", "sweep"]),
        (["sweep", "--ranks", "0", "1"], ["sweep", "--ranks", "0,1"]),
        (["--top-k", "5", "7"], ["--top-k", "5", "7"]),
        (["--channels=28", "42"], ["--channels=28", "42"]),
        (["--channels"], ["--channels"]),
    ],
)  # fmt: skip
def test_numbers_after_an_option_of_a_list(given, joined):
    assert _joined(given) == joined


def test_numbers():
    assert parse_numbers("28, 42,", "--channels") == (28, 42)
    for bad in ("", "4-8", "x"):
        with pytest.raises(RequestError, match="whole numbers"):
            parse_numbers(bad, "--channels")


def test_the_sweep_that_paths_name():
    sweep = Path("runs/sweep_1")
    files = [sweep / "tracelens_analysis" / "top5.csv", sweep / "analysis", None]
    assert sweep_folders(None, files) == (sweep, sweep / "tracelens_analysis")
    assert sweep_folders(sweep, []) == (sweep, None)
    with pytest.raises(RequestError, match="different sweeps"):
        sweep_folders(sweep, [Path("runs/sweep_2/tracelens_analysis")])


@pytest.mark.parametrize("parse", [parse_counts, parse_numbers])
def test_numbers_that_nothing_has_are_refused(parse):
    digits = "9" * 5000
    with pytest.raises(RequestError):
        parse([digits] if parse is parse_counts else digits, "--threads")
