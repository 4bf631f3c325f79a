from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from gemmetry.counters.model import verdicts

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = str(DATA / "h200_cublas_bf16_4096_raw.csv.gz")
DETAILS = str(DATA / "h200_cublas_bf16_4096_details.csv.gz")
SHAPE = ("--shape", "4096x4096x4096", "--dtype", "bf16")
NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def test_brief_and_the_checklist_do_not_fit_on_a_terminal(cli, tmp_path):
    ended = cli("counters", "diagnose", RAW, "--brief", "--beside")
    assert (ended.status, ended.stdout) == (2, "")
    assert "--brief and --beside" in ended.stderr and "-o diagnosis.html" in ended.stderr
    place = tmp_path / "all.json"
    assert cli("counters", "diagnose", RAW, "--brief", "--beside", "-o", str(place)).status == 0
    assert "side_by_side" in json.loads(place.read_text())["launches"][0]


def test_products_of_other_sizes_than_the_one_given_are_noted(cli):
    gemms = str(DATA / "planted_h200" / "gemms.csv.gz")
    note = "the GEMMs did different work"
    ended = cli("counters", "diagnose", gemms, "--kernel", "matmul_kernel", *SHAPE, "--json")
    (problem,) = json.loads(ended.stdout)["problems"]
    assert note in problem and "4096x4096x4096" in problem
    assert f"warning: {problem}" in ended.stderr
    for others in (("--kernel", "matmul_kernel"), ("--kernel", "_tst_256x128_64x4", *SHAPE)):
        ended = cli("counters", "diagnose", gemms, *others, "--brief")
        assert (ended.status, note in ended.stderr) == (0, False)


def test_json(cli):
    document = json.loads(cli("counters", "diagnose", RAW, *SHAPE, "--json").stdout)
    assert document["schema_version"] == 1
    (launch,) = document["launches"]
    assert launch["kernel"] == NAME
    assert launch["device"] == "NVIDIA H200"
    assert launch["duration_ns"] == 180_992
    assert launch["verdict"] == {
        "id": "tensor_roof", "claim": "The tensor pipe is at 90.4 % of its peak rate",
        "confidence": "high",
    }  # fmt: skip
    assert launch["verdict"]["id"] in verdicts()
    assert {one["id"] for one in launch["suppressed"]} >= {"latency_barrier", "occupancy_registers"}
    assert launch["roofline"]["path"] == "bf16"
    assert "side_by_side" not in launch


def test_files(cli, tmp_path):
    files = [tmp_path / name for name in ("a.csv", "a.md", "a.json", "a.html")]
    cli("counters", "diagnose", RAW, "-o", ",".join(map(str, files)))
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows if row["kind"] == "verdict"] == ["tensor_roof"]
    assert {row["kind"] for row in rows} == {"verdict", "finding", "suppressed"}
    assert json.loads(files[2].read_text())["launches"][0]["verdict"]["id"] == "tensor_roof"
    assert all("tensor_roof" in file.read_text() for file in files)


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


def test_launches_alike_are_shown_once_and_listed_all(cli, two_kernels):
    ended = cli("counters", "diagnose", str(two_kernels))
    assert ended.stdout.count("verdict     tensor_roof") == 2
    assert "one of 2 launches alike" in ended.stdout
    document = json.loads(cli("counters", "diagnose", str(two_kernels), "--json").stdout)
    assert len(document["launches"]) == 3


def test_a_folder_of_collected_counters(cli, two_kernels):
    assert cli("counters", "diagnose", str(two_kernels.parent), "--brief").status == 0


def test_kernels_are_selected_by_name(cli, two_kernels):
    found = cli("counters", "diagnose", str(two_kernels), "--kernel", "^nvjet", "--json")
    assert len(json.loads(found.stdout)["launches"]) == 2


def test_names_are_neither_markup_nor_formulas(cli, two_kernels, tmp_path):
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    cli("counters", "diagnose", str(two_kernels), "-o", f"{page},{table}")
    assert "A0&lt;script&gt;" in page.read_text()
    assert "A0<script>" not in page.read_text()
    with table.open(newline="") as file:
        assert not any(row["kernel"].startswith("=") for row in csv.DictReader(file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "absent"), "no kernel matches 'absent'"),
        (("--kernel", "("), "not a regular expression"),
        (("--shape", "4096"), "4096"),
        (("--dtype", "bf16"), "without a shape"),
        (("--shape", "1x2x3", "--dtype", "bf17"), "bf17"),
        (("--shape", "1x2x3", "--operation", "matmul_1x2x3_f32t_f32t_f32t"), "--operation"),
        (("--shape", "1x8x8x3_3x3x4"), "convolution"),
        (("-o", "a.unknown"), "a.unknown"),
    ],
)
def test_bad_requests(cli, arguments, message):
    ended = cli("counters", "diagnose", RAW, *arguments)
    assert (ended.status, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert "hint:" in ended.stderr


def test_shapes_with_commas_and_whole_operations(cli):
    for work in (("--shape", "4096,4096,4096", "--dtype", "bf16:bf16:bf16"),
                 ("--operation", "matmul_4096x4096x4096_bf16t_bf16n_bf16t")):  # fmt: skip
        document = json.loads(cli("counters", "diagnose", RAW, *work, "--json").stdout)
        checks = document["launches"][0]["work_check"]
        assert [one["verdict"] for one in checks] == ["ok", "ok", "ok", "reread"]


def test_another_shape_is_a_mismatch(cli):
    document = json.loads(
        cli("counters", "diagnose", RAW, "--shape", "2048x4096x4096", "--json").stdout
    )
    assert document["launches"][0]["verdict"]["id"] == "work_mismatch"


def test_a_file_that_is_no_report(cli, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    ended = cli("counters", "diagnose", str(path))
    assert ended.status == 2
    assert "hint:" in ended.stderr


@pytest.mark.parametrize("command", [("diagnose", RAW), ("compare", RAW, RAW)])
def test_rooflines_as_pictures(cli, tmp_path, command):
    pytest.importorskip("matplotlib")
    ended = cli("counters", *command, "-o", str(tmp_path / "r.png"), "-o", str(tmp_path / "r.svg"))
    assert ended.status == 0
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "r.svg").read_text()
    assert NAME in svg
    assert "device memory, 4.81 TB/s" in svg


@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.html"])
@pytest.mark.parametrize("command", ["diagnose", "compare"])
def test_a_missing_library_for_plots_is_reported_before_any_work(
    cli, tmp_path, monkeypatch, command, name
):
    monkeypatch.setattr("gemmetry.results.tables.is_installed", lambda _module: False)
    ended = cli("counters", command, "nowhere.csv", "-o", str(tmp_path / name))
    assert (ended.status, ended.stdout) == (2, "")
    assert "which is not installed" in ended.stderr
    assert "pip install 'gemmetry[plot]'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_counted_operations_there_is_nothing_to_draw(cli, tmp_path):
    pytest.importorskip("matplotlib")
    mi300x = str(DATA / "mi300x_vcopy_pmc_perf.csv.gz")
    ended = cli("counters", "diagnose", mi300x, "-o", str(tmp_path / "x.png"))
    assert ended.status == 2
    assert "the operations of no kernel were counted" in ended.stderr
    assert "--set gemm" in ended.stderr
    assert list(tmp_path.iterdir()) == []
