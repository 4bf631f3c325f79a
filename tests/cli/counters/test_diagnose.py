from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from gemmetry.hardware.detect import GpuFacts, GpuList

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = str(DATA / "h200_cublas_bf16_4096_raw.csv.gz")
NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def test_launches_alike_are_shown_once_and_names_are_neither_markup_nor_formulas(cli):
    """The raw page with its launch three times, under two names."""
    with gzip.open(RAW, "rt", newline="") as file:
        head, units, row = csv.reader(file)
    other = [cell.replace(NAME, "=cmd|' /C calc'!A0<script>") for cell in row]
    with Path("counters.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, units, row, row, other])
    command = ("counters", "diagnose", "counters.csv")
    ended = cli(*command, "-o", "a.html,a.csv")
    assert ended.stdout.count("verdict     tensor_roof") == 2
    assert "one of 2 launches alike" in ended.stdout
    assert len(cli.json(*command)["launches"]) == 3
    assert len(cli.json(*command, "--kernel", "^nvjet")["launches"]) == 2
    assert "A0&lt;script&gt;" in Path("a.html").read_text()
    assert "A0<script>" not in Path("a.html").read_text()
    with Path("a.csv").open(newline="") as file:
        assert not any(row["kernel"].startswith("=") for row in csv.DictReader(file))


@pytest.mark.parametrize("command", [("diagnose", RAW), ("compare", RAW, RAW)])
def test_rooflines_as_pictures(cli, command):
    pytest.importorskip("matplotlib")
    cli("counters", *command, "-o", "r.png", "-o", "r.svg", status=0)
    assert Path("r.png").read_bytes().startswith(b"\x89PNG")
    svg = Path("r.svg").read_text()
    assert NAME in svg and "device memory, 4.81 TB/s" in svg


@pytest.mark.parametrize(
    ("command", "name"), [("diagnose", "x.png"), ("compare", "x.svg"), ("diagnose", "x.html")]
)
def test_a_missing_library_for_plots_is_reported_before_any_work(
    cli, tmp_path, monkeypatch, command, name
):
    monkeypatch.setattr("gemmetry.results.tables.is_installed", lambda _module: False)
    ended = cli("counters", command, "nowhere.csv", "-o", str(tmp_path / name))
    assert (ended.status, ended.stdout) == (2, "")
    assert "which is not installed" in ended.stderr
    assert "pip install 'gemmetry[plot]'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_the_gpu_of_this_machine(cli, monkeypatch):
    gpu = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", architecture="sm_90")
    monkeypatch.setattr("gemmetry.counters.api.nvidia_gpus", lambda: GpuList((gpu,)))
    found = cli.json("counters", "metrics", "--concept", "stall_gmma")
    assert found["metrics"][0]["chip"] == "GH100"
    for vendor in ("nvidia_gpus", "amd_gpus"):
        monkeypatch.setattr(f"gemmetry.counters.api.{vendor}", lambda: GpuList((), "none"))
    ended = cli("counters", "metrics", status=2)
    assert "no GPU" in ended.stderr and "--chip gh100" in ended.stderr


def test_many_launches_are_not_all_printed(cli):
    rows = "".join(f'"{number}","k","1"\n' for number in range(60))
    Path("raw.csv").write_text('"ID","Kernel Name","a"\n"","",""\n' + rows)
    ended = cli("counters", "import", "raw.csv")
    assert "10 more launches" in ended.stdout
    assert "  49  k\n" in ended.stdout and "  50  k\n" not in ended.stdout
