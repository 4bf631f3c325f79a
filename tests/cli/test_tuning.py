"""``gemmetry tune`` with the null provider, whose configurations have planted times and faults."""

from __future__ import annotations

from collections import Counter
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
ONE = "64x64x64"


def _tuning(cli, *folder):
    """Tunes the null provider with these additional configurations."""

    def run(*arguments, names=PLANTED, shapes=ONE):
        spec = SPEC.format(names=", ".join(names), shapes=shapes)
        Path(*folder, "spec.yaml").write_text(spec)
        return cli(*folder, "tune", "--spec", "spec.yaml", "--device", "null", "--experiment", "t",
                   *arguments)  # fmt: skip

    return type(cli)(run)


@pytest.fixture
def tune(cli):
    return _tuning(cli)


def records(folder):
    with Experiment.open(Path(folder)) as stored:
        return list(stored.records())


def test_the_fastest_correct_configuration_wins(tune):
    found = tune.json("--strategy", "exhaustive", shapes="64x64x64, 128x64x32")
    assert found["complete"] is True
    for winner in found["winners"]:
        assert winner["configuration"] == "factor_0p7"
        assert (winner["space"], winner["tried"], winner["failed"]) == (9, 9, 4)
        assert winner["baseline"] == "null:default"
        assert winner["verdict"] == "faster"
        assert 1 < winner["speed_low"] < winner["speed"] < winner["speed_high"]
    assert found["gains"][0]["faster"] == 2
    assert {r.verdict.checks["repeat"] for r in records("t")} == {"passed"}
    outcomes = Counter(str(r.outcome) for r in records("t/search"))
    assert outcomes == {"ok": 10, "wrong": 4, "crash": 2, "compile_error": 2}


def test_the_same_command_measures_nothing_again_and_a_larger_search_grows(tune):
    search = ("--strategy", "exhaustive", "--finalists", "1", "--evaluations")
    first, again = (tune(*search, "3", status=0) for _ in range(2))
    assert "2 from an earlier run are kept" in again.stderr  # of the finals
    assert again.stdout == first.stdout
    (larger,) = tune.json(*search, "4")["winners"]
    assert larger["tried"] == 4
    assert len(records("t/search")) == 4


def test_a_shape_without_a_configuration_does_not_stop_the_others(cli):
    Path("spec.yaml").write_text(
        "operation_kind: matmul, batch_matmul\nshapes: 64x64x64, 2x64x64x64\n"
        "providers:\n  - name: 'null'\n    options: {unsupported: [batch_matmul]}\n"
    )
    found = cli.json("tune", "--spec", "spec.yaml", "--device", "null", "--strategy", "exhaustive",
                     "--finalists", "1", "--experiment", "t", status=1)  # fmt: skip
    winners = {w["operation"].split("_")[0]: w for w in found["winners"]}
    assert winners["matmul"]["configuration"] == "fast"
    assert "batch_matmul is among the kinds" in winners["batch"]["reason"]


def test_a_shape_of_which_nothing_works_has_no_winner(tune):
    only = ("--strategy", "exhaustive", "--dispatches", "configuration=wrong*")
    (winner,) = tune.json(*only, names=("wrong", "wrong_nan"), status=1)["winners"]
    assert winner["configuration"] is None
    assert winner["reason"] == "none of the 2 that were tried worked"


def test_the_search_ends_in_time(tune):
    limits = ("--strategy", "exhaustive", "--time", "0s", "--finalists", "0")
    ended = tune(*limits, status=1)
    assert "The search did not come to its end" in ended.stdout
    assert "the time ended before one was tried" in ended.stdout


def test_an_interrupted_search_says_what_is_stored_and_continues(tune, monkeypatch):
    real, seen = ProgressListener.__call__, []

    def listen(self, event):
        real(self, event)
        seen.append(event)
        if sum(isinstance(one, DispatchFinished) for one in seen) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressListener, "__call__", listen)
        ended = tune("--strategy", "exhaustive", status=130)
    assert "of 9 dispatches" in ended.stderr
    assert "are stored in t/search" in ended.stderr
    assert "The same command continues" in ended.stderr
    kept = {record.dispatch: record.measurement for record in records("t/search")}
    assert len(kept) >= 3
    tune("--strategy", "exhaustive", "--finalists", "1", status=0)
    now = {record.dispatch: record.measurement for record in records("t/search")}
    assert len(now) == 9
    assert kept.items() <= now.items(), "nothing is measured again"


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
    found = tune.json("--strategy", "exhaustive", "--verification-level", "quick", names=(),
                      status=status)  # fmt: skip
    assert {one["reason"] for one in found["winners"]} == {reason}


def test_a_dry_run_lists_the_spaces(tune):
    rows = tune.json("--dry-run", "--evaluations", "50%", shapes="64x64x64, 128x64x32")["spaces"]
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
        stored = records(folder)
        assert len(stored) == count
        places = {(record.operation, record.device_ids) for record in stored}
        assert len(places) == 4, "an operation stays on one device"
    devices = {record.device for record in records("t/search")}
    # A device that is late finds nothing left to do.
    assert devices and devices <= {"null:0", "null:1"}


def test_shards_prove_and_search_their_shapes_and_merge(tune, cli, monkeypatch):
    """Also where finalists are proved at other sizes, whose names belong to other shards."""
    # Sizes for GPUs, on which a product of 4608 terms takes no time.
    monkeypatch.setattr(problems, "_PROOF_SIZES", ((40, 32), (72, 56), (96, 96)))
    shapes = ("64x64x64", "64x32x32")
    winners = []
    for number in (1, 2):
        found = tune.json("--strategy", "exhaustive", "--verification-level", "quick",
                          "--shapes", ",".join(shapes), "--shard", f"{number}/2",
                          "--experiment", f"t{number}", names=("factor_0p7", "wrong"))  # fmt: skip
        winners.append(found["winners"])
        assert all("repeat" not in r.verdict.checks for r in records(f"t{number}"))
        proofs = records(f"t{number}/proofs")
        assert {r.verdict.checks["repeat"] for r in proofs} == {"passed"}
        assert all(r.measurement is None for r in proofs)
    names = {f"matmul_{shape}_f32t_f32t_f32t" for shape in shapes}
    assert all(winners) and {one["operation"] for some in winners for one in some} == names
    assert {one["configuration"] for some in winners for one in some} == {"factor_0p7"}
    cli("merge", "t1", "t2", "-o", "m", status=0)
    assert {record.operation for record in records("m")} == names
    statuses = [tune("--dry-run", "--shard", f"{number}/2").status for number in (1, 2)]
    assert sorted(statuses) == [0, 2], "one of them has nothing to do, and ends with why"


def test_a_file_that_cannot_hold_the_result_does_not_cost_the_others(tune):
    """TunableOp's file is empty without torch among the baselines."""
    written = ("-o", "found.csv,found.md")
    ended = tune("--strategy", "exhaustive", "--finalists", "1", *written, names=(), status=2)
    assert "TunableOp's file would be empty" in ended.stderr
    assert "fast" in Path("found.md").read_text()


FACTORS = [f"factor_0p{n}" for n in range(711, 738) if n % 10]


@pytest.fixture(scope="module")
def searched(run_in, tmp_path_factory):
    """The folder of an exhaustive search of two shapes."""
    folder = tmp_path_factory.mktemp("searched")
    _tuning(run_in, folder)("--strategy", "exhaustive", "--finalists", "0",
                            names=[*FACTORS, "wrong"], shapes="64x64x64, 32x32x32",
                            status=0)  # fmt: skip
    assert not (folder / "t/journal.sqlite").exists()
    return str(folder / "t")


def test_strategies_are_compared_on_a_stored_search_and_its_compact_file(searched, cli):
    compared = ("--strategy", "exhaustive,random", "--runs", "4", "--evaluations", "10%,100%")
    cli("tune", "--simulate", searched, "-o", "space.json", "--format", "space", status=0)
    found = cli.json("tune", "--simulate", "space.json", *compared)
    rows = found["strategies"]
    assert [(row["strategy"], row["budget"]) for row in rows] == [
        ("exhaustive", 0.1), ("exhaustive", 1), ("random", 0.1), ("random", 1),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["lowest"] <= row["mean"] <= row["highest"] <= 1
    assert rows[0]["evaluations"] == 3
    assert rows[3]["mean"] > 0.999
    assert rows[2]["mean"] < rows[3]["mean"]
    stored = cli.json("tune", "--simulate", searched, *compared)["strategies"]
    means = [row["mean"] for row in rows]
    assert means == pytest.approx([row["mean"] for row in stored], rel=1e-4)


def test_a_search_that_did_not_try_everything_is_not_taken_for_exhaustive(tune, cli):
    options = ("--strategy", "random", "--evaluations", "22", "--finalists", "0")
    tune(*options, names=FACTORS, status=0)
    shown = cli("tune", "--simulate", "t", "--strategy", "random", "--runs", "2", status=0)
    assert "strategy random, which does not try all" in shown.stderr
    assert "22 configurations that it tried" in shown.stdout
