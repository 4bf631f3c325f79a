from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmetry.counters import api as counter_diagnosis
from gemmetry.counters.api import diagnose
from gemmetry.domain.errors import EmptySelectionError
from gemmetry.formats.counters.launches import LaunchTable


@pytest.fixture
def report(counter_launches, monkeypatch):
    """Reads as a report of these kernels, each with a duration in µs."""

    def of(kernels):
        alike = counter_launches.launch(counter_launches.metrics()).table
        count = len(kernels)
        values = {name: np.repeat(column, count) for name, column in alike.values.items()}
        values["gpu__time_duration.sum"] = np.array([time * 1e3 for _, time in kernels])
        table = LaunchTable(
            tool="ncu", infos=[replace(alike.infos[0], name=name) for name, _ in kernels],
            values=values, units=alike.units, problems=["a problem"],
        )  # fmt: skip
        monkeypatch.setattr(counter_diagnosis, "read_counters", lambda path: table)

    return of


def test_kernels_are_grouped_and_those_that_take_longest_come_first(report):
    report([("a", 100), ("b", 500), ("a", 300), ("a", 200)])
    found = diagnose("x.csv")
    assert [(one.diagnosis.kernel, one.count) for one in found.groups()] == [("a", 3), ("b", 1)]
    assert found.groups()[0].diagnosis.duration_ns == 200_000
    assert len(found.document()["launches"]) == 4
    assert found.document()["problems"] == ["a problem"]


def test_kernels_that_are_not_shown_are_counted(report):
    report([(f"kernel_{number}", 100) for number in range(13)])
    found = diagnose("x.csv")
    assert (len(found.groups()), found.hidden_groups) == (10, 3)
    assert len(found.document(brief=True)["launches"]) == 10


def test_two_reports_are_one_diagnosis(report):
    report([("a", 100)])
    assert len(diagnose("x.csv", "y.csv").diagnoses) == 2


def test_no_kernel_of_that_name(report):
    report([("a", 100)])
    with pytest.raises(EmptySelectionError, match="no kernel matches 'b'") as error:
        diagnose("x.csv", kernel="b")
    assert error.value.hint == "Kernels of the reports: a"
    report([])
    with pytest.raises(EmptySelectionError, match="the reports have no kernel: a problem"):
        diagnose("x.csv")
