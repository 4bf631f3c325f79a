from __future__ import annotations

import json

import pytest

from gemmetry.domain.errors import Outcome, RequestError, Verification
from gemmetry.domain.record import Environment
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.merging import MeasuredOn, import_results, measured_like, merge

WHOLE = "matmul_64x64x64_f32t_f32t_f32t"


def _cache(path, entries):
    document = {"device_name": "NVIDIA H200", "tune_params_keys": ["T"], "cache": entries}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def imported(tmp_path):
    """Imports tables with these rows by name; the summary."""

    def go(into="out", operation="f32t_f32t_f32t", **tables):
        for name, rows in tables.items():
            text = "\n".join(["(M, N, K);aten-latency;bias-latency", *rows])
            (tmp_path / f"{name}.csv").write_text(text)
        paths = [tmp_path / f"{name}.csv" for name in tables]
        return import_results(paths, tmp_path / into, operation=operation)

    return go


def _records(path):
    with Experiment.open(path) as experiment:
        return list(experiment.records())


def test_samples_become_an_interval_and_a_single_time_does_not(tmp_path):
    times = [1 + i / 1000 for i in range(20)]
    entries = {"1": {"T": 1, "time": 1.0, "times": times}, "2": {"T": 2, "time": 3.0}}
    cache = _cache(tmp_path / "k.json", entries)
    summary = import_results([cache], tmp_path / "out", operation=WHOLE)
    assert (summary.records, dict(summary.by_format)) == (2, {"kernel_tuner": 2})
    with Experiment.open(tmp_path / "out") as experiment:
        sampled, single = experiment.records()
        assert experiment.samples(sampled) == pytest.approx([1e6 * one for one in times])
        assert experiment.samples(single) == []
        environments = experiment.environments()
    first, second = sampled.measurement, single.measurement
    assert first.ci_low_ns < first.median_ns < first.ci_high_ns
    assert (first.sample_count, first.min_ns) == (20, 1e6)
    assert (second.median_ns, second.sample_count) == (3e6, 0)
    assert (second.ci_low_ns, second.ci_high_ns, second.min_ns, second.p95_ns) == (None,) * 4
    for record in (sampled, single):
        assert record.is_imported
        assert record.verdict.status is Verification.NOT_VERIFIED
        assert record.verdict.reason == "imported from k.json, not verified here"
        assert environments[record.environment_id] == Environment(devices=("NVIDIA H200",))


def test_names_are_unique_and_split_again(tmp_path, imported):
    imported(t=["(8, 8, 8);1;2", "(8, 8, 8);3;4"])
    names = [record.configuration for record in _records(tmp_path / "out")]
    assert names == ["aten", "kernel_bias", "aten_2", "kernel_bias_2"]


def test_the_rest_of_a_file_with_a_bad_row_is_imported(tmp_path, imported):
    assert len(imported(t=["(8, 8);1;2", "(8, 8, 8);1;CUDA OOM"]).problems) == 2
    right, failed = _records(tmp_path / "out")
    assert right.outcome is Outcome.OK
    assert (failed.outcome, failed.measurement) == (Outcome.OUT_OF_MEMORY, None)


def test_results_like_an_experiments_are_merged_into_it(tmp_path, open_experiment, make_record):
    with open_experiment("mine") as experiment:
        own = make_record()
        experiment.finish({1: own})
    on = measured_like(tmp_path / "mine")
    alike = ("target", "device", "distribution", "seed")
    assert on == MeasuredOn(**{name: getattr(own, name) for name in alike})
    cache = _cache(tmp_path / "k.json", {"1": {"T": 1, "time": 1.0}})
    import_results([cache], tmp_path / "theirs", operation=own.operation, measured_on=on)
    merge([tmp_path / "mine", tmp_path / "theirs"], tmp_path / "both")
    records = _records(tmp_path / "both")
    assert len(records) == 2
    assert len({(r.target, r.device, r.operation, r.distribution) for r in records}) == 1


def test_what_cannot_be_imported_leaves_nothing_behind(tmp_path, open_experiment, imported):
    table = ["(8, 8, 8);1;2"]
    with pytest.raises(RequestError, match=r"nothing can be imported from .*t\.csv: .*formats"):
        imported(operation="", t=table)
    assert not (tmp_path / "out").exists()
    open_experiment("mine").close()
    with pytest.raises(RequestError, match="already contains an experiment"):
        imported("mine", t=table)
    with pytest.raises(RequestError, match="has no records"):
        measured_like(tmp_path / "mine")


def test_a_file_without_results_among_others_is_named(imported):
    summary = imported(t=["(8, 8, 8);1;2"], empty=[])
    assert summary.records == 2
    assert summary.problems == ["empty.csv: there are no results in it"]
    with pytest.raises(RequestError, match=r"empty\.csv: there are no results in it"):
        imported("other", empty=[])


def test_several_devices_are_not_one(tmp_path, open_experiment, make_record):
    with open_experiment("mine") as experiment:
        experiment.finish({1: make_record(), 2: make_record(distribution="normal")})
    with pytest.raises(RequestError, match="several devices, distributions or seeds"):
        measured_like(tmp_path / "mine")
