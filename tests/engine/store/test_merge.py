from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import CounterFacts, Environment
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.merging import copy_files, merge, whole_document


@pytest.fixture
def fill(open_experiment, make_record, make_round):
    """Stores an experiment of two records, one of which is only there."""

    def go(folder, seconds=1.0, hostname="here"):
        environment_id = Environment(hostname=hostname).id
        with open_experiment(folder, hostname=hostname) as e:
            e.add_rounds([make_round(1, 0, seconds), make_round(2, 0, seconds + 1)])
            e.finish({1: make_record(environment_id=environment_id)})
            e.finish({2: make_record(environment_id=environment_id, dispatch=folder)})

    return go


@pytest.fixture
def merged(tmp_path):
    """Merges folders into another one; the summary."""

    def go(names, into="all", **arguments):
        return merge([tmp_path / name for name in names], tmp_path / into, **arguments)

    return go


def test_the_newest_of_equal_results_stays_with_its_samples(tmp_path, fill, merged, make_record):
    for name, seconds in (("new", 10.0), ("old", 20.0), ("newest", 30.0)):
        fill(name, seconds)
    summary = merged(["newest", "old", "new"], command="gemmetry merge")
    assert (summary.kept, summary.replaced) == (4, 2)
    with Experiment.open(tmp_path / "all") as found:
        samples = {r.dispatch: found.samples(r) for r in found.records()}
        shared = make_record().dispatch
        assert samples == {shared: [30.0], "new": [11.0], "old": [21.0], "newest": [31.0]}
        results = found.result_set()
        assert (results.title, results.command) == ("store", "gemmetry merge")
        assert len(results.document["merged"]) == 3


def test_launches_of_two_kinds_are_not_merged(tmp_path, open_experiment, make_record, merged):
    plain = make_record()
    for name, launches in (("a", "back_to_back"), ("b", "apart")):
        with open_experiment(name) as experiment:
            measured = replace(plain.measurement, launches=launches)
            experiment.finish({1: make_record(measurement=measured)})
    with pytest.raises(RequestError) as refused:
        merged("ab")
    assert str(tmp_path / "b") in str(refused.value)
    assert not (tmp_path / "all").exists()


def test_other_conditions_stay_apart(tmp_path, open_experiment, make_record, fill, merged):
    here, there = (Environment(hostname=name).id for name in ("here", "there"))
    fill("a")
    fill("b", hostname="there")
    with open_experiment("c") as experiment:
        experiment.finish({1: make_record(distribution="normal"), 2: make_record(seed=7)})
    merged("abc")
    with Experiment.open(tmp_path / "all") as found:
        records = [r for r in found.records() if r.dispatch == make_record().dispatch]
        conditions = {(r.environment_id, r.distribution, r.seed): r for r in records}
        usual = (here, "offset_uniform", 42)
        others = {(there, *usual[1:]), (here, "normal", 42), (here, "offset_uniform", 7)}
        assert conditions.keys() == {usual} | others
        assert found.samples(conditions[usual]) == [1.0]
        assert set(found.environments()) == {here, there}


def test_a_merge_can_be_merged(fill, merged):
    for name in "abc":
        fill(name)
    merged("ab", "first")
    assert merged(["first", "c"], "second").kept == 4


def test_counters_go_with_their_records(tmp_path, open_experiment, make_record, merged):
    folder = "counters/null/null/one"
    for name, hostname in (("a", "here"), ("b", "there"), ("c", "there")):
        counters = CounterFacts(folder=folder, metric_set="gemm", verdict=name)
        environment_id = Environment(hostname=hostname).id
        with open_experiment(name, hostname=hostname) as experiment:
            experiment.finish({1: make_record(environment_id=environment_id, counters=counters)})
        (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / folder / "counters.csv").write_text(name)
    shutil.rmtree(tmp_path / "c/counters")
    for names, into, expected in (
        ("abc", "all", {"a": folder, "c": f"{folder}-2"}),
        ("ba", "both", {"b": folder, "a": f"{folder}-2"}),
    ):
        merged(names, into)
        with Experiment.open(tmp_path / into) as found:
            kept = {one.counters.verdict: one.counters.folder for one in found.records()}
        assert kept == expected
        for verdict, place in kept.items():
            path = tmp_path / into / place / "counters.csv"
            # Records of c were lost before, and are not taken for records of a.
            assert not path.exists() if verdict == "c" else path.read_text() == verdict


@pytest.mark.parametrize(("names", "into", "words"), [
    ("a", "all", "two experiments"), ("ac", "all", "no experiment in"),
    ("ab", "b", "already contains"),
])  # fmt: skip
def test_what_cannot_be_merged_is_reported(tmp_path, open_experiment, merged, names, into, words):
    for name in "ab":
        open_experiment(name).close()
    with pytest.raises(RequestError, match=words):
        merged(names, into)
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    "shards",
    [["", "1/2"], ["1/2", ""], ["1/2", "1/2"], ["1/2", "2/3"], ["2/2"]],
)
def test_only_all_shards_of_one_plan_are_whole(tmp_path, shards):
    paths = [tmp_path / str(place) for place in range(len(shards))]
    documents = [{"shard": shard, "level": "quick"} for shard in shards]
    with pytest.raises(RequestError, match=str(tmp_path) if len(shards) > 1 else "1/2"):
        whole_document(paths, documents)


def test_links_in_a_shard_stay_links(tmp_path):
    """What a link points to is neither read nor entered."""
    outside, kept, into = tmp_path / "outside", tmp_path / "shard" / "artifacts", tmp_path / "into"
    for folder in (outside, kept, into):
        folder.mkdir(parents=True)
    (outside / "secret").touch()
    for name, target in (("file", outside / "secret"), ("folder", outside)):
        (kept / name).symlink_to(target)
    copy_files([tmp_path / "shard"], into)
    assert all((into / "artifacts" / name).is_symlink() for name in ("file", "folder"))
