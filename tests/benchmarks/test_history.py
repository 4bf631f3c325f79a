from __future__ import annotations

import pytest

import history

DRIFT = "the machine drifts by 5 %"


@pytest.mark.parametrize("kind", [*list(history.NOISES)[:4], DRIFT])
def test_nothing_fails_without_a_change(kind: str) -> None:
    counts = history.false_alarms(kind, 60, 40)
    assert counts["alarms"] == 0
    assert counts["kernel"] == 0 or kind != DRIFT


@pytest.mark.parametrize(
    ("factor", "threshold", "found", "kernel"),
    [(1.1, 0.02, 3, 3), (1.0, 0.02, 0, 0), (1.02, 0.02, 3, 0), (1.02, 0.01, 3, 3)],
)
def test_a_slower_kernel_counts_where_it_exceeds_the_threshold(factor, threshold, found, kernel):
    shown = history.power(factor, 30, 60, planted=3, threshold=threshold)
    assert (shown.found, shown.kernel, len(shown.delays)) == (found, kernel, kernel)
    assert factor != 1.1 or shown.delays[-1] <= 6, "it has run a few times"


def test_the_figures_are_printed(capsys) -> None:
    history.main(["--series", "10", "--runs", "20", "--histories", "1"])
    printed = capsys.readouterr().out
    assert "| changes and causes |" in printed
    assert all(kind in printed for kind in history.NOISES)


def test_a_large_step_is_an_alarm_in_the_first_run_after_it() -> None:
    shown = history.first_run(1.5, 5, 0.01, histories_=10)
    assert (shown.found, shown.others) == (100, 0)
    assert shown.promised > 80
