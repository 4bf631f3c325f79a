"""``gemmetry dispatcher``, from experiments to a table and its regret."""

from __future__ import annotations

import json
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

    shown = cli("dispatcher", "show", "table.json")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["64x64x64", "numpy:default", "0.800", "shown", "to", "be", "faster"] in lines
    assert ["128x64x64", "torch", "1.200", "others", "are", "slower"] in lines
    again = cli("dispatcher", "build", "tuning", "-o", "table.json", "--json").stdout
    document = cli("dispatcher", "show", "table.json", "--json").stdout
    assert json.loads(again) == json.loads(document)
    assert json.loads(document)["entries"][0]["times_ns"] == {
        "numpy:default": 800000.0, "torch:default": 1000000.0
    }  # fmt: skip

    document = cli.json("dispatcher", "evaluate", "held-out", "--table", "table.json")
    assert document["schema_version"] == 1
    assert document["policies"][0]["name"] == "dispatcher"
    assert document["policies"][0]["geometric_mean"] == 0
    assert document["policies"][1]["geometric_mean"] == pytest.approx(1)
    assert document["choices"][0]["choice"] == "numpy:default"

    text = cli("dispatcher", "evaluate", "held-out", "--table", "table.json", "-o", "choices.csv")
    assert "1 unseen shape" in text.stdout
    assert "Noise: unknown" in text.stdout
    assert "60x64x64" in Path("choices.csv").read_text()


def test_mistakes(cli, folders):
    Path("bad.json").write_text("{")
    damaged = cli("dispatcher", "evaluate", "held-out", "--table", "bad.json", status=2)
    assert "bad.json is damaged" in damaged.stderr
    assert "hint: " in damaged.stderr
    cli("dispatcher", "build", "tuning", "-o", "table.json")
    seen = cli("dispatcher", "evaluate", "tuning", "--table", "table.json", status=2)
    assert "no shape for cpu" in seen.stderr


def test_a_real_experiment(cli):
    profile = ("profile", "--providers", "null", "--shapes", "64x64x64", "--experiment", "a")
    assert cli(*profile, "--verification-level", "standard").status == 0
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
    refused = cli(*command, "--dtypes", "f32", status=2)
    assert "f32" in refused.stderr


def test_evaluate_with_trials_measures_on_the_device_of_the_table(cli):
    pytest.importorskip("torch")
    common = ("--layouts", "tn", "--dtypes", "bf16", "--device", "cpu", "--providers",
              "torch,numpy", "--time-budget", "5ms")  # fmt: skip
    assert cli("profile", "--shapes", "64x64x64", *common, "--verification-level", "standard",
               "--experiment", "a").status == 0  # fmt: skip
    assert cli("profile", "--shapes", "48x96x200", *common, "--experiment", "b").status == 0
    assert cli("dispatcher", "build", "a", "-o", "table.json").status == 0
    for trials in ((), ("--trials",)):
        (shape,) = cli.json("dispatcher", "evaluate", "b", "--table", "table.json",
                            *trials)["choices"]  # fmt: skip
        assert shape["step"] == ("exact entry" if trials else "cuBLAS")
