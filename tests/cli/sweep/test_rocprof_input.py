"""``gemmetry sweep rocprof-input``, and ``sweep run`` with such a file."""

from __future__ import annotations

import pytest
import yaml

KERNEL = "Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_MI16x16x1"


@pytest.fixture
def top(tmp_path):
    path = tmp_path / "top5.csv"
    path.write_text(f"threads,kernel_name\n256,{KERNEL}\n256,Memset (Device)\n512,{KERNEL}.kd\n")
    return path


@pytest.mark.parametrize("names", [("--from", "-o"), ("--input-csv", "--output-yaml")])
def test_from_a_table_to_an_input(names, cli, top, tmp_path):
    ended = cli("sweep", "rocprof-input", names[0], "top5.csv", names[1], "x.yaml")
    assert ended.status == 0, ended.stderr
    assert "gemmetry sweep run --rocprof-input x.yaml" in ended.stderr
    [job] = yaml.safe_load((tmp_path / "x.yaml").read_text())["jobs"]
    assert job["kernel_include_regex"] == f"^(?:{KERNEL})$"
    assert {"SQ_BUSY_CU_CYCLES", "SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_INSTS_MFMA",
            "GRBM_GUI_ACTIVE"} <= set(job["pmc"])  # fmt: skip
    assert (tmp_path / "x_kernel_list.txt").read_text() == f"{KERNEL}\n"


def test_counters_of_ones_own(cli, top, tmp_path):
    ended = cli("sweep", "rocprof-input", "--from", "top5.csv", "-o", "x.yaml", "--counters",
                "MfmaUtil,SQ_INSTS_LDS", "--chip", "gfx950")  # fmt: skip
    assert ended.status == 0, ended.stderr
    [job] = yaml.safe_load((tmp_path / "x.yaml").read_text())["jobs"]
    assert job["pmc"] == ["MfmaUtil", "SQ_INSTS_LDS"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "everything"), "unknown preset of counters 'everything'"),
        (("--counters", "SQ_WAVE", "--chip", "gfx942"), "Did you mean SQ_WAVES"),
        (("--chip", "gfx94"), "gfx942"),
        (("--from", "none.csv"), "none.csv"),
    ],
)
def test_what_cannot_be_written(options, message, cli, top, tmp_path):
    ended = cli("sweep", "rocprof-input", "--from", "top5.csv", "-o", "x.yaml", *options)
    assert ended.status == 2
    assert message in ended.stderr
    assert not (tmp_path / "x.yaml").exists()


def test_a_sweep_with_a_wrong_input_does_not_begin(cli, tmp_path):
    (tmp_path / "x.yaml").write_text("jobs: [{output_format: [perfetto]}]")
    ended = cli("sweep", "run", "--command", "true", "--rocprof-input", "x.yaml", "-o", "s")
    assert ended.status == 2
    assert "Did you mean pftrace?" in ended.stderr
    (tmp_path / "x.yaml").write_text("jobs: [{output_directory: elsewhere}]")
    ended = cli("sweep", "run", "--command", "true", "--rocprof-input", "x.yaml", "-o", "s")
    assert "sets output_directory" in ended.stderr
    assert not (tmp_path / "s").exists()
