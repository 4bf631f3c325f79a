"""Tests of ``gemmetry kernels ladder``, with the null provider's configurations as rungs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gemmetry.dispatches import ladder as api
from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.hardware.cuda_plans import LaunchPlan
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import CudaKernel
from gemmetry.providers.cuda_provider.provider import CudaProvider
from gemmetry.providers.registry import load_provider


class Simulated(CudaProvider):
    """The null provider's device, and its configurations by name."""

    name = "null"

    def available(self):
        return None

    def targets(self):
        return [*load_provider("null").targets(), Target(TargetKind.CUDA, "sm_90", None)]


class Pretended(CudaKernel):
    """A rung whose configurations are the null provider's."""

    key = property(lambda self: self.configurations(None)[0].name.partition("_")[0])


def _kernel(rung: int, name: str, *configurations: str) -> CudaKernel:
    return Pretended(
        name=f"r{rung:02d}_{name}",
        rung=rung,
        adds=f"what {name} adds",
        checked=(),
        why_not=lambda operation, configuration: None,
        plan=lambda operation, configuration, processors: LaunchPlan(launches=()),
        configurations=lambda operation: tuple(map(Configuration, configurations)),
    )


KERNELS = (
    _kernel(0, "naive", "factor_150"),
    _kernel(1, "threads", "noisy_1"),
    _kernel(2, "tiles", "default"),
    _kernel(3, "wrong", "wrong"),
    _kernel(4, "best", "fast"),
)


def _simulate(monkeypatch) -> None:
    monkeypatch.setattr(api, "PROVIDER", Simulated)
    monkeypatch.setattr(api, "_SMALL", 32)
    monkeypatch.setattr(catalogue, "kernels", lambda: KERNELS)
    # The library's fastest configuration is also that of rung 4, and so on every product.
    monkeypatch.setattr(api, "baseline_names", lambda names: ["null"])


@pytest.fixture
def rungs(monkeypatch):
    _simulate(monkeypatch)


@pytest.fixture(scope="module")
def experiment(run_in, tmp_path_factory):
    """The folder of a ladder of a small and of a large product."""
    folder = tmp_path_factory.mktemp("ladder")
    with pytest.MonkeyPatch.context() as monkeypatch:
        _simulate(monkeypatch)
        run_in(folder, "kernels", "ladder", "--sizes", "24,40", "--experiment", "x", status=1)
    return folder / "x"  # rung 3 is wrong


def test_the_document_has_the_rungs_and_the_phases(cli, rungs, experiment):
    document = cli.json("kernels", "ladder", experiment)
    rows = {(row["operation"].split("_")[1], row["rung"]): row for row in document["ladder"]}
    assert [rung for size, rung in rows if size == "24x24x24"] == [0, 1, 2, 4]
    assert [rung for size, rung in rows if size == "40x40x40"] == [2, 3, 4]
    first, wrong, best = (rows[key] for key in (("24x24x24", 1), ("40x40x40", 3), ("40x40x40", 4)))
    assert (first["gain_over"], first["gain_verdict"]) == ("r00_naive", "faster")
    assert 1 < first["gain_low"] < first["gain"] < first["gain_high"]
    assert (wrong["outcome"], wrong["tflops"]) == ("wrong", None) and wrong["reason"]
    assert (best["gain_over"], best["verification"]) == ("r02_tiles", "passed")
    assert best["gain_low"] > 1 and best["tflops_low"] <= best["tflops"] <= best["tflops_high"]
    (phase,) = document["phases"]
    assert (phase["first_rung"], phase["last_rung"], phase["expected_high"]) == (0, 2, 200)


def test_files_are_tables_or_a_picture(cli, rungs, experiment):
    ended = cli("kernels", "ladder", experiment, "-o", "l.csv,l.json,l.md,l.png,l.svg", status=0)
    assert "4 best" in ended.stdout
    assert len(list(csv.DictReader(Path("l.csv").read_text().splitlines()))) == 7
    assert set(json.loads(Path("l.json").read_text())) >= {"ladder", "phases"}
    assert "warps in parallel" in Path("l.md").read_text()
    assert Path("l.png").read_bytes().startswith(b"\x89PNG")
    svg = Path("l.svg").read_text()
    assert "4 best" in svg and "TFLOP/s" in svg


def test_rungs_and_configurations_can_be_chosen(rungs, monkeypatch):
    def names(**values):
        plan, _ = api.prepare_ladder(sizes=(16, 64), **values)
        return [(one.operation.matmul_shape.m, one.configuration) for one in plan.named]

    assert names(rungs=[0, 2]) == [
        (16, "factor_150"), (16, "default"), (16, "default"), (16, "fast"),
        (64, "default"), (64, "default"), (64, "fast"),
    ]  # fmt: skip
    assert names(rungs=[4]) == [(64, "fast"), (64, "default"), (64, "fast")]
    monkeypatch.setattr(api, "best_baseline", lambda: "null:noisy_2")
    assert names(rungs=[4]) == [(64, "fast"), (64, "default"), (64, "fast"), (64, "noisy_2")]
    first, second = (api.prepare_ladder(sizes=(16,), dtype=name)[0] for name in ("bf16", "f16"))
    assert first.hash != second.hash
    assert first.settings.verification_level == "standard"
    assert (first.settings.regime, first.settings.distribution) == ("burst", "normal")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--rungs", "9"), "unknown rung '9'"),
        (("--rungs", "a-b"), "is not a number or a range"),
        (("--dtype", "f64"), "unknown format of the ladder 'f64'"),
        (("--regime", "cold"), "unknown regime 'cold'"),
        (("--device", "cuda:7"), "cuda:7 is no Hopper GPU of this machine"),
        (("--sizes", "16", "--rungs", "4"), "no rung runs on these sizes"),
        (("--sizes", "x"), "x"),
        (("-o", "ladder.docx"), "unknown suffix"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(cli, rungs, arguments, part):
    assert part in cli("kernels", "ladder", *arguments, status=2).stderr
    assert not Path("gemmetry-out").exists()


def test_without_a_hopper_gpu_the_next_step_is_named(cli, rungs, monkeypatch):
    here = [Target(TargetKind.CUDA, "sm_90", None)]
    monkeypatch.setattr(Simulated, "targets", lambda self: here)
    ended = cli("kernels", "ladder", status=2)
    assert "there is no Hopper GPU" in ended.stderr and "gemmetry kernels check" in ended.stderr


def test_an_experiment_without_rungs_is_refused(cli):
    cli("profile", "--providers", "null", "--shapes", "8x8x8", "--experiment", "y", status=0)
    assert "has no result of a rung" in cli("kernels", "ladder", "y", status=2).stderr


def test_the_real_ladder_has_a_step_for_every_rung():
    steps = api.ladder_steps()
    assert [step.number for step in steps] == list(range(12))
    ends = {end for phase in api.PHASES for end in (phase.first, phase.last)}
    assert ends <= {step.number for step in steps}
