from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted_kernels import KERNELS
from predicted_counters import PREDICTED, Range, compare, main

from gemmetry.counters.catalogue import has_metric
from gemmetry.formats.counters.launches import LaunchInfo, LaunchTable

CUBLAS = Path(__file__).parents[2] / "data/counters/h200_cublas_bf16_4096_raw.csv.gz"


def test_every_kernel_has_predictions_of_metrics_that_exist() -> None:
    assert set(PREDICTED) == {planted.name for planted in KERNELS}
    for ranges in PREDICTED.values():
        for each in ranges:
            assert each.low <= each.high
            for metric in each.metric.split(" / "):
                assert has_metric("GH100", metric), metric


def table(**values: float) -> LaunchTable:
    names = ("fma_severe(const unsigned *)", "fma_mild", "other_severe")
    infos = [LaunchInfo(name=name) for name in names]
    columns = {metric: np.full(len(names), value) for metric, value in values.items()}
    return LaunchTable(tool="ncu", infos=infos, values=columns, units={})


def test_only_severe_variants_are_compared() -> None:
    fma, dram = (each.metric for each in PREDICTED["fma"])
    rows = compare(list(table(**{fma: 95.0, dram: 50.0})))
    found = [(kernel, value, right) for kernel, _, value, right in rows]
    assert found == [("fma", 95.0, True), ("fma", 50.0, False)]
    assert [right for *_, right in compare(list(table()))] == [False, False]


def test_a_quotient_needs_both_metrics() -> None:
    quotient = Range("above / below", 0, 1)
    assert quotient.measured(table(above=3.0, below=4.0)[0]) == 0.75
    assert quotient.measured(table(above=3.0, below=0.0)[0]) is None
    assert quotient.measured(table(above=3.0)[0]) is None


def test_a_file_without_the_kernels_ends_with_an_error(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(CUBLAS)])
    assert caught.value.code == 1
    assert "0 of 0 predictions hold." in capsys.readouterr().out
