from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import CounterFacts, Environment
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.merging import merge


def _fill(open_experiment, make_record, make_round, path, seconds, hostname="here"):
    environment = Environment(hostname=hostname)
    with open_experiment(path, environment=environment) as e:
        e.add_rounds([make_round(1, 0, seconds), make_round(2, 0, seconds + 1)])
        e.finish({1: make_record(environment_id=environment.id)})
        e.finish({2: make_record(environment_id=environment.id, dispatch=str(path.name))})


def test_the_newest_of_equal_results_stays_and_samples_go_with_their_records(
    tmp_path, open_experiment, make_record, make_round
):
    for name, seconds in (("new", 10.0), ("old", 20.0), ("newest", 30.0)):
        _fill(open_experiment, make_record, make_round, tmp_path / name, seconds)
    paths = [tmp_path / name for name in ("newest", "old", "new")]
    summary = merge(paths, tmp_path / "all", command="gemmetry merge")
    assert (summary.kept, summary.replaced) == (4, 2)
    with Experiment.open(tmp_path / "all") as merged:
        samples = {r.dispatch: merged.samples(r) for r in merged.records()}
        assert samples == {
            make_record().dispatch: [30.0], "new": [11.0], "old": [21.0], "newest": [31.0]
        }  # fmt: skip
        results = merged.result_set()
        assert results.title == "store"
        assert results.command == "gemmetry merge"
        assert len(results.document["merged"]) == 3


def test_launches_of_two_kinds_are_not_merged(tmp_path, open_experiment, make_record):
    plain = make_record()
    for name, launches in (("a", "back_to_back"), ("b", "apart")):
        with open_experiment(tmp_path / name) as experiment:
            measured = replace(plain.measurement, launches=launches)
            experiment.finish({1: make_record(measurement=measured)})
    with pytest.raises(RequestError) as refused:
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert str(tmp_path / "b") in str(refused.value)
    assert not (tmp_path / "all").exists()


def test_results_of_different_conditions_stay_apart(
    tmp_path, open_experiment, make_record, make_round
):
    there = Environment(hostname="there")
    _fill(open_experiment, make_record, make_round, tmp_path / "a", 1.0)
    _fill(open_experiment, make_record, make_round, tmp_path / "b", 2.0, "there")
    with open_experiment(tmp_path / "c") as experiment:
        experiment.finish({1: make_record(distribution="normal"), 2: make_record(seed=7)})
    merge([tmp_path / name for name in "abc"], tmp_path / "all")
    with Experiment.open(tmp_path / "all") as merged:
        records = [r for r in merged.records() if r.dispatch == make_record().dispatch]
        found = {(r.environment_id == there.id, r.distribution, r.seed) for r in records}
        assert found == {
            (False, "offset_uniform", 42),
            (True, "offset_uniform", 42),
            (False, "normal", 42),
            (False, "offset_uniform", 7),
        }
        here = next(r for r in records if r.environment_id != there.id)
        assert merged.samples(here) == [1.0]
        assert set(merged.environments()) == {there.id, Environment(hostname="here").id}


def test_a_merge_can_be_merged(tmp_path, open_experiment, make_record, make_round):
    for name in "abc":
        _fill(open_experiment, make_record, make_round, tmp_path / name, 1.0)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "ab")
    assert merge([tmp_path / "ab", tmp_path / "c"], tmp_path / "abc").kept == 4


def test_counters_go_with_their_records(tmp_path, open_experiment, make_record):
    folder = "counters/null/null/one"
    for name, environment in (("a", "here"), ("b", "there"), ("c", "there")):
        environment = Environment(hostname=environment)
        with open_experiment(tmp_path / name, environment=environment) as experiment:
            counters = CounterFacts(folder=folder, metric_set="gemm", verdict=name)
            experiment.finish({1: make_record(environment_id=environment.id, counters=counters)})
        (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / folder / "counters.csv").write_text(name)
    shutil.rmtree(tmp_path / "c/counters")
    merge([tmp_path / name for name in "abc"], tmp_path / "all")
    with Experiment.open(tmp_path / "all") as merged:
        kept = {one.counters.verdict: one.counters.folder for one in merged.records()}
    assert kept == {"a": folder, "c": f"{folder}-2"}
    assert (tmp_path / "all" / folder / "counters.csv").read_text() == "a"
    assert not (
        tmp_path / "all" / kept["c"]
    ).exists()  # It was lost before, and is not taken for a.
    merge([tmp_path / "b", tmp_path / "a"], tmp_path / "both")
    with Experiment.open(tmp_path / "both") as merged:
        for one in merged.records():
            path = tmp_path / "both" / one.counters.folder / "counters.csv"
            assert path.read_text() == one.counters.verdict


def test_what_cannot_be_merged_is_reported(tmp_path, open_experiment):
    for name in "ab":
        open_experiment(tmp_path / name).close()
    for names, into, words in (("a", "all", "two experiments"), ("ac", "all", "no experiment in"),
                               ("ab", "b", "already contains")):  # fmt: skip
        with pytest.raises(RequestError, match=words):
            merge([tmp_path / name for name in names], tmp_path / into)
    assert not (tmp_path / "all").exists()
