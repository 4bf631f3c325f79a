from __future__ import annotations

import history
import pytest


@pytest.mark.parametrize("kind", list(history.NOISES)[:4])
def test_nothing_fails_without_a_change(kind: str) -> None:
    assert history.false_alarms(kind, 60, 40)["alarms"] == 0


def test_a_machine_that_drifts_fails_nothing() -> None:
    counts = history.false_alarms("the machine drifts by 5 %", 60, 60)
    assert counts["alarms"] == 0
    assert counts["kernel"] == 0


def test_a_slower_kernel_is_found_when_it_has_run_a_few_times() -> None:
    shown = history.power(1.1, 60, 60, planted=3)
    assert (shown.found, shown.kernel) == (3, 3)
    assert shown.delays[-1] <= 6
    assert history.power(1.0, 60, 60, planted=3) == history.Power(0, 0, ())


def test_a_change_as_large_as_the_threshold_is_found_and_counts_as_none() -> None:
    shown = history.power(1.02, 60, 60, planted=3)
    assert (shown.found, shown.kernel) == (3, 0)
    assert history.power(1.02, 60, 60, planted=3, threshold=0.01).kernel == 3


def test_the_figures_are_printed(capsys) -> None:
    history.main(["--series", "10", "--runs", "20", "--histories", "1"])
    printed = capsys.readouterr().out
    assert "| changes and causes |" in printed
    assert all(kind in printed for kind in history.NOISES)


def test_a_large_step_is_an_alarm_in_the_first_run_after_it() -> None:
    shown = history.first_run(1.5, 5, 0.01, histories_=10)
    assert (shown.found, shown.others) == (100, 0)
    assert shown.promised > 80
