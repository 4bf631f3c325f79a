"""``gemmetry tune`` with the null provider, whose configurations have planted times and faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.dispatches.progress import ProgressListener
from gemmetry.domain.record import DispatchFinished
from gemmetry.engine import slots as grouping
from gemmetry.engine.experiment import Experiment
from gemmetry.tuning.dispatcher import table as problems
from gemmetry.tuning.run import EngineMeasure

SPEC = """
providers:
  - name: "null"
    options:
      configurations: [{names}]
shapes: {shapes}
"""
PLANTED = ("factor_0p7", "factor_0p9", "factor_1p2", "wrong", "crash", "compile_error", "late")
FACTORS = [f"factor_0p{n}" for n in range(711, 738) if n % 10]


@pytest.fixture
def tune(cli):
    """Tunes the null provider with these additional configurations."""

    def run(*arguments, names=PLANTED, shapes="64x64x64, 128x64x32"):
        Path("spec.yaml").write_text(SPEC.format(names=", ".join(names), shapes=shapes))
        return cli("tune", "--spec", "spec.yaml", "--device", "null", "--experiment", "t",
                   *arguments)  # fmt: skip

    return run


def test_the_fastest_correct_configuration_wins(tune):
    found = tune.json("--strategy", "exhaustive")
    assert found["complete"] is True
    for winner in found["winners"]:
        assert winner["configuration"] == "factor_0p7"
        assert (winner["space"], winner["tried"], winner["failed"]) == (9, 9, 4)
        assert winner["baseline"] == "null:default"
        assert winner["verdict"] == "faster"
        assert 1 < winner["speed_low"] < winner["speed"] < winner["speed_high"]
    assert found["gains"][0]["faster"] == 2
    with Experiment.open(Path("t")) as finals:
        assert {r.verdict.checks["repeat"] for r in finals.records()} == {"passed"}
    with Experiment.open(Path("t/search")) as search:
        outcomes = search.outcome_counts()
    assert outcomes == {"ok": 10, "wrong": 4, "crash": 2, "compile_error": 2}


def test_the_same_command_measures_nothing_again_and_a_larger_search_grows(tune):
    first = tune("--strategy", "exhaustive", "--evaluations", "3", status=0)
    again = tune("--strategy", "exhaustive", "--evaluations", "3", status=0)
    assert "6 from an earlier run are kept" in again.stderr
    assert again.stdout == first.stdout
    larger = tune("--strategy", "exhaustive", "--evaluations", "4", "--json")
    assert [w["tried"] for w in json.loads(larger.stdout)["winners"]] == [4, 4]
    with Experiment.open(Path("t/search")) as search:
        assert search.total() == 8


def test_what_cannot_be_distinguished_is_called_undecided(tune):
    command = ("--strategy", "exhaustive", "--finalists", "2")
    names = ("factor_0p7", "factor_0p7001")
    ended = tune(*command, names=names, status=0)
    assert "which of them is the fastest is undecided" in ended.stdout
    document = json.loads(tune(*command, "--json", names=names).stdout)
    for winner in document["winners"]:
        assert {winner["configuration"], *winner["ties"]} == {*names}


def test_halving_measures_with_few_samples_first(tune):
    names = ("factor_0p7", *(f"factor_0p{n}" for n in range(801, 834) if n % 10))
    ended = tune("--strategy", "halving", "--evaluations", "6", "--json", names=names, status=0)
    samples = {}
    for folder in ("search-short2", "search-short1", "search"):
        with Experiment.open(Path("t", folder)) as stored:
            measured = [r.measurement.sample_count for r in stored.records()]
            samples[folder] = (len(measured), set(measured))
    assert samples == {"search-short2": (36, {1}), "search-short1": (12, {3}), "search": (4, {9})}
    winners = json.loads(ended.stdout)["winners"]
    assert [w["configuration"] for w in winners] == ["factor_0p7"] * 2
    assert all(w["evaluations"] == pytest.approx(6) for w in winners)


def test_a_shape_without_a_configuration_does_not_stop_the_others(cli):
    Path("spec.yaml").write_text(
        "operation_kind: matmul, batch_matmul\nshapes: 64x64x64, 2x64x64x64\n"
        "providers:\n  - name: 'null'\n    options: {unsupported: [batch_matmul]}\n"
    )
    winners = {w["operation"].split("_")[0]: w for w in cli.json("tune", "--spec", "spec.yaml",
                                                                 "--device", "null", "--strategy",
                                                                 "exhaustive", "--experiment", "t",
                                                                 status=1)["winners"]}  # fmt: skip
    assert winners["matmul"]["configuration"] == "fast"
    assert "batch_matmul is among the kinds" in winners["batch"]["reason"]


def test_a_shape_of_which_nothing_works_has_no_winner(tune):
    (first, _) = tune.json("--strategy", "exhaustive", "--dispatches", "configuration=wrong*",
                           names=("wrong", "wrong_nan"), status=1)["winners"]  # fmt: skip
    assert first["configuration"] is None
    assert first["reason"] == "none of the 2 that were tried worked"


def test_the_search_ends_in_time_and_continues(tune):
    ended = tune("--strategy", "exhaustive", "--time", "0s", "--finalists", "0", status=1)
    assert "The search did not come to its end" in ended.stdout
    assert "the time ended before one was tried" in ended.stdout
    assert tune("--strategy", "exhaustive").status == 0


def test_an_interrupted_search_says_what_is_stored_and_continues(tune, monkeypatch):
    real, seen = ProgressListener.__call__, []

    def listen(self, event):
        real(self, event)
        seen.append(event)
        if sum(isinstance(one, DispatchFinished) for one in seen) == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressListener, "__call__", listen)
        ended = tune("--strategy", "exhaustive")
    assert ended.status == 130
    assert "of 18 dispatches" in ended.stderr
    assert "are stored in t/search" in ended.stderr
    assert "The same command continues" in ended.stderr
    with Experiment.open(Path("t/search")) as stored:
        kept = {record.dispatch: record.measurement for record in stored.records()}
    assert len(kept) >= 6
    tune("--strategy", "exhaustive", status=0)
    with Experiment.open(Path("t/search")) as stored:
        now = {record.dispatch: record.measurement for record in stored.records()}
    assert len(now) == 18
    assert kept.items() <= now.items(), "nothing is measured again"


def test_quick_finals_are_of_kernels_that_were_proved(tune, monkeypatch):
    # The sizes are those of GPUs, on which a product of 4608 terms takes no time.
    monkeypatch.setattr(problems, "_PROOF_SIZES", ((40, 32), (72, 56), (96, 96)))
    names = ("factor_0p7", "factor_0p9", "wrong")
    ended = tune("--strategy", "exhaustive", "--verification-level", "quick", "--json", names=names,
                 status=0)  # fmt: skip
    assert "proofs: 6 finalists at level standard" in ended.stderr
    winners = json.loads(ended.stdout)["winners"]
    assert [one["configuration"] for one in winners] == ["factor_0p7"] * 2
    with Experiment.open(Path("t")) as finals:
        assert all("repeat" not in r.verdict.checks for r in finals.records())
    with Experiment.open(Path("t/proofs")) as opened:
        proofs = list(opened.records())
    assert {r.verdict.checks["repeat"] for r in proofs} == {"passed"}
    sizes = {r.operation.split("x", 1)[1] for r in proofs}
    assert sizes == {"72x96_f32t_f32t_f32t", "128x512_f32t_f32t_f32t"}
    assert all(r.measurement is None for r in proofs)


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        ("", 1, "no finalist passed the verification at level standard"),
        ("no space left", 3, "there were no finals"),  # The machine refutes nothing.
    ],
)
def test_without_a_proved_kernel_there_is_no_winner(tune, monkeypatch, failure, status, reason):
    def proven(self, chosen):
        self.failure = failure or self.failure
        return [[] for _ in chosen]

    monkeypatch.setattr(EngineMeasure, "proven", proven)
    ended = tune("--strategy", "exhaustive", "--verification-level", "quick", "--json",
                 status=status)  # fmt: skip
    assert {one["reason"] for one in json.loads(ended.stdout)["winners"]} == {reason}


def test_a_dry_run_lists_the_spaces(tune):
    rows = tune.json("--dry-run", "--evaluations", "50%")["spaces"]
    assert [(row["space"], row["evaluations"]) for row in rows] == [(9, 5), (9, 5)]
    assert not Path("t").exists()


def test_shapes_are_distributed_over_devices(cli, monkeypatch):
    """All configurations of a shape, and its finals, stay on one device."""
    monkeypatch.setattr(grouping, "SMALL_OPERATION_FLOPS", 0)  # so that no shapes share a group
    Path("spec.yaml").write_text(
        "shapes: 64x64x64, 128x64x32, 32x64x64, 64x32x32\ntime_budget: 50ms\n"
        "providers:\n  - name: 'null'\n    options: {devices: 2, configurations: [slow_2]}\n"
    )
    found = cli.json("tune", "--spec", "spec.yaml", "--device", "null", "--experiment", "t",
                     "--devices", "all", "--strategy", "exhaustive", "--finalists",
                     "1")  # fmt: skip
    assert [one["configuration"] for one in found["winners"]] == ["fast"] * 4
    assert found["gains"][0]["faster"] == 4
    for folder, count in (("t/search", 12), ("t", 8)):
        with Experiment.open(Path(folder)) as stored:
            records = list(stored.records())
        assert len(records) == count
        places = {(record.operation, record.device_ids) for record in records}
        assert len(places) == 4, "an operation stays on one device"
    with Experiment.open(Path("t/search")) as search:
        devices = {record.device for record in search.records()}
    # A device that is late finds nothing left to do.
    assert devices and devices <= {"null:0", "null:1"}


def test_shards_search_their_shapes_and_merge(tune, cli, monkeypatch):
    """Also where finalists are proved at other sizes, whose names belong to other shards."""
    monkeypatch.setattr(problems, "_PROOF_SIZES", ((40, 32), (72, 56), (96, 96)))
    shapes = ("64x64x64", "128x64x32", "32x64x64", "64x32x32")
    options = ("--strategy", "exhaustive", "--verification-level", "quick", "--shapes",
               ",".join(shapes), "--json")  # fmt: skip
    winners = []
    for number in (1, 2):
        ended = tune(*options, "--shard", f"{number}/2", "--experiment", f"t{number}", status=0)
        winners.append(json.loads(ended.stdout)["winners"])
    names = {f"matmul_{shape}_f32t_f32t_f32t" for shape in shapes}
    assert all(winners) and {one["operation"] for some in winners for one in some} == names
    assert {one["configuration"] for some in winners for one in some} == {"factor_0p7"}
    assert cli("merge", "t1", "t2", "-o", "m").status == 0
    with Experiment.open(Path("m")) as merged:
        assert {record.operation for record in merged.records()} == names
    statuses = [tune("--dry-run", "--shapes", "64x64x64", "--shard", f"{number}/2").status
                for number in (1, 2)]  # fmt: skip
    assert sorted(statuses) == [0, 2], "one of them has nothing to do, and ends with why"


def test_a_file_that_cannot_hold_the_result_does_not_cost_the_others(tune):
    """TunableOp's file is empty without torch among the baselines."""
    ended = tune("--strategy", "exhaustive", "-o", "found.csv,found.md", status=2)
    assert "TunableOp's file would be empty" in ended.stderr
    assert "factor_0p7" in Path("found.md").read_text()
    tune("--strategy", "exhaustive", "-o", "found.json", "--format", "results", status=0)
    assert json.loads(Path("found.json").read_text())["winners"][0]["configuration"] == "factor_0p7"


@pytest.fixture
def searched(tune, cli):
    """`cli` next to the folder t, which holds an exhaustive search of two shapes."""
    tune("--strategy", "exhaustive", "--finalists", "0", names=[*FACTORS, "wrong"],
         shapes="64x64x64, 32x32x32", status=0)  # fmt: skip
    assert not Path("t/journal.sqlite").exists()
    return cli


def test_strategies_are_compared_on_a_stored_search(searched):
    rows = searched.json("tune", "--simulate", "t", "--strategy", "exhaustive,random", "--runs",
                         "4", "--evaluations", "10%,100%")["strategies"]  # fmt: skip
    assert [(row["strategy"], row["budget"]) for row in rows] == [
        ("exhaustive", 0.1), ("exhaustive", 1), ("random", 0.1), ("random", 1),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["lowest"] <= row["mean"] <= row["highest"] <= 1
    assert rows[0]["evaluations"] == 3
    assert rows[3]["mean"] > 0.999
    assert rows[2]["mean"] < rows[3]["mean"]


def test_a_compact_file_gives_the_same_results(searched):
    searched("tune", "--simulate", "t", "-o", "space.json", "--format", "space", status=0)
    arguments = ("--strategy", "random", "--runs", "3", "--json")
    stored, compact = (
        json.loads(searched("tune", "--simulate", source, *arguments).stdout)
        for source in ("t", "space.json")
    )
    for one, other in zip(stored["strategies"], compact["strategies"], strict=True):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-4)


def test_a_search_that_is_not_finished_is_left_out(tune, cli):
    assert tune("--finalists", "0", names=(), shapes="8x8x8").status == 0
    small = cli("tune", "--simulate", "t", status=2)
    assert "20 configurations with a time" in small.stderr


def test_a_search_that_did_not_try_everything_is_not_taken_for_exhaustive(tune, cli):
    tune("--strategy", "random", "--evaluations", "22", "--finalists", "0", names=FACTORS,
         shapes="64x64x64", status=0)  # fmt: skip
    shown = cli("tune", "--simulate", "t", "--strategy", "random", "--runs", "2", status=0)
    assert "strategy random, which does not try all" in shown.stderr
    assert "22 configurations that it tried" in shown.stdout
