from __future__ import annotations

import history
import pytest


@pytest.mark.parametrize("kind", list(history.NOISES)[:4])
def test_nothing_fails_without_a_change(kind: str) -> None:
    assert history.false_alarms(kind, 60, 40)["alarms"] == 0


def test_a_slower_kernel_is_found_when_it_has_run_a_few_times() -> None:
    assert history.found_after(6, 60, 40, planted=3, factor=1.1) == 3


def test_the_figures_are_printed(capsys) -> None:
    history.main(["--series", "30", "--runs", "20"])
    printed = capsys.readouterr().out
    assert "| changes and causes |" in printed
    assert all(kind in printed for kind in history.NOISES)
