"""Lists and folders as the old scripts write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.cli.sweep.arguments import _joined, parse_numbers, sweep_folder
from gemmetry.domain.errors import RequestError


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
    assert parse_numbers(None, "--channels") is None
    for bad in ("", "4-8", "x"):
        with pytest.raises(RequestError, match="whole numbers"):
            parse_numbers(bad, "--channels")


def test_the_sweep_that_paths_name():
    sweep = Path("runs/sweep_1")
    files = [sweep / "tracelens_analysis" / "top5.csv", sweep / "analysis", None]
    assert sweep_folder(None, files) == sweep
    assert sweep_folder(sweep, []) == sweep
    with pytest.raises(RequestError, match="different sweeps"):
        sweep_folder(sweep, [Path("runs/sweep_2/tracelens_analysis")])
