"""``gemmetry dispatcher``, from experiments to a table and its regret."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import tuned

from gemmetry.engine.experiment import Experiment
from gemmetry.tuning.dispatcher.table import read_table


def record(m, provider, ns):
    return tuned.record(f"matmul_{m}x64x64_f32t_f32t_f32t", provider, "default", ns)


TUNING = tuned.results(
    *(record(m, "torch", 1e6) for m in (64, 128)),
    record(64, "numpy", 0.8e6),
    record(128, "numpy", 1.2e6),
)
HELD_OUT = tuned.results(record(60, "torch", 1e6), record(60, "numpy", 0.5e6), title="held-out")


@pytest.fixture
def folders(monkeypatch):
    """The folders ``tuning`` and ``held-out`` hold these results."""

    stored = {"tuning": TUNING, "held-out": HELD_OUT}

    def opened(path):
        return nullcontext(SimpleNamespace(result_set=lambda: stored[Path(path).name]))

    monkeypatch.setattr(Experiment, "open", opened)


def test_build_show_and_evaluate(cli, folders):
    built = cli("dispatcher", "build", "tuning", "-o", "table.json", status=0)
    assert "2 shapes of cpu: 1 with a candidate that is shown to be faster" in built.stdout
    assert "wrote table.json" in built.stderr
    assert read_table(Path("table.json")).entries[0].choice == "numpy:default"

    lines = [line.split() for line in cli("dispatcher", "show", "table.json").stdout.splitlines()]
    assert ["64x64x64", "numpy:default", "0.800", "shown", "to", "be", "faster"] in lines
    assert ["128x64x64", "torch", "1.200", "others", "are", "slower"] in lines
    document = cli.json("dispatcher", "show", "table.json")
    assert cli.json("dispatcher", "build", "tuning", "-o", "table.json") == document
    assert document["entries"][0]["times_ns"] == {"numpy:default": 8e5, "torch:default": 1e6}

    evaluate = ("dispatcher", "evaluate", "held-out", "--table", "table.json")
    document = cli.json(*evaluate)
    assert [one["name"] for one in document["policies"]][:1] == ["dispatcher"]
    means = [one["geometric_mean"] for one in document["policies"]][:2]
    assert means == [0, pytest.approx(1)]
    assert document["choices"][0]["choice"] == "numpy:default"
    text = cli(*evaluate, "-o", "choices.csv").stdout
    assert "1 unseen shape" in text and "Noise: unknown" in text
    assert "60x64x64" in Path("choices.csv").read_text()


def test_a_real_experiment(cli):
    cli("profile", "--providers", "null", "--shapes", "64x64x64", "--experiment", "a",
        "--verification-level", "standard", status=0)  # fmt: skip
    ended = cli("dispatcher", "build", "a", "-o", "folder/table.json", status=0)
    assert "1 shape of null: 0 with a candidate" in ended.stdout
    table = read_table(Path("folder/table.json"))
    assert table.certificates
    assert table.entries[0].choice == "torch:default", "nothing is known of cuBLAS"


def test_a_table_is_made_in_a_given_time_of_shapes_that_matmul_dispatches(cli):
    pytest.importorskip("torch")
    command = ("dispatcher", "tune", "--shapes", "64x64x64,32x64x64", "--device", "cpu",
               "--providers", "torch,numpy", "--experiment", "t")  # fmt: skip
    made = cli(*command, "--minutes", "0", "-o", "table.json", status=0)
    assert "1 shape not measured" in made.stderr
    assert [one.shape for one in read_table(Path("table.json")).entries] == [(64, 64, 64)]
    cli(*command, "--minutes", "2", status=0)
    entries = read_table(Path("t/table.json")).entries
    assert {one.shape for one in entries} == {(64, 64, 64), (32, 64, 64)}
    assert all(one.choice == "torch:default" for one in entries)
    assert "f32" in cli(*command, "--dtypes", "f32", status=2).stderr


def test_evaluate_with_trials_measures_on_the_device_of_the_table(cli):
    pytest.importorskip("torch")
    common = ("--layouts", "tn", "--dtypes", "bf16", "--device", "cpu", "--providers",
              "torch,numpy", "--time-budget", "5ms")  # fmt: skip
    cli("profile", "--shapes", "64x64x64", *common, "--verification-level", "standard",
        "--experiment", "a", status=0)  # fmt: skip
    cli("profile", "--shapes", "48x96x200", *common, "--experiment", "b", status=0)
    cli("dispatcher", "build", "a", "-o", "table.json", status=0)
    for trials, step in (((), "cuBLAS"), (("--trials",), "exact entry")):
        document = cli.json("dispatcher", "evaluate", "b", "--table", "table.json", *trials)
        (shape,) = document["choices"]
        assert shape["step"] == step
