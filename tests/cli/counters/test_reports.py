from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from gemmetry.hardware.detect import GpuFacts, GpuList

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = str(DATA / "h200_cublas_bf16_4096_raw.csv.gz")
NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


@pytest.fixture
def two_kernels(tmp_path):
    """The raw page with its launch three times, under two names."""
    with gzip.open(RAW, "rt", newline="") as file:
        head, units, row = csv.reader(file)
    other = [cell.replace(NAME, "=cmd|' /C calc'!A0<script>") for cell in row]
    path = tmp_path / "counters.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, units, row, row, other])
    return path


def test_launches_alike_are_shown_once_and_listed_all_or_by_name(cli, two_kernels):
    command = ("counters", "diagnose", str(two_kernels))
    ended = cli(*command)
    assert ended.stdout.count("verdict     tensor_roof") == 2
    assert "one of 2 launches alike" in ended.stdout
    assert len(json.loads(cli(*command, "--json").stdout)["launches"]) == 3
    named = cli(*command, "--kernel", "^nvjet", "--json")
    assert len(json.loads(named.stdout)["launches"]) == 2


def test_names_are_neither_markup_nor_formulas(cli, two_kernels, tmp_path):
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    cli("counters", "diagnose", str(two_kernels), "-o", f"{page},{table}")
    assert "A0&lt;script&gt;" in page.read_text()
    assert "A0<script>" not in page.read_text()
    with table.open(newline="") as file:
        assert not any(row["kernel"].startswith("=") for row in csv.DictReader(file))


@pytest.mark.parametrize("command", [("diagnose", RAW), ("compare", RAW, RAW)])
def test_rooflines_as_pictures(cli, tmp_path, command):
    pytest.importorskip("matplotlib")
    cli("counters", *command, "-o", str(tmp_path / "r.png"), "-o", str(tmp_path / "r.svg"),
        status=0)  # fmt: skip
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "r.svg").read_text()
    assert NAME in svg
    assert "device memory, 4.81 TB/s" in svg


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
    ended = cli("counters", "metrics", "--concept", "stall_gmma", "--json")
    assert json.loads(ended.stdout)["metrics"][0]["chip"] == "GH100"


def test_without_a_gpu_a_chip_has_to_be_given(cli, monkeypatch):
    for vendor in ("nvidia_gpus", "amd_gpus"):
        monkeypatch.setattr(f"gemmetry.counters.api.{vendor}", lambda: GpuList((), "none"))
    ended = cli("counters", "metrics", status=2)
    assert "no GPU" in ended.stderr and "--chip gh100" in ended.stderr


def test_many_launches_are_not_all_printed(cli, tmp_path):
    file = tmp_path / "raw.csv"
    rows = "".join(f'"{number}","k","1"\n' for number in range(60))
    file.write_text('"ID","Kernel Name","a"\n"","",""\n' + rows)
    ended = cli("counters", "import", str(file))
    assert "10 more launches" in ended.stdout
    assert "  49  k\n" in ended.stdout and "  50  k\n" not in ended.stdout
