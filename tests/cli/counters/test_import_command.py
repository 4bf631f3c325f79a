from __future__ import annotations

import csv
import json
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"
DETAILS = DATA / "h200_cublas_bf16_4096_details.csv.gz"
NAME = '=HYPERLINK("http://x"),<b>[red]k[/red]</b>'


def named(path: Path) -> Path:
    """A raw page with one launch of a kernel whose name looks like a formula and like markup."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerows([("ID", "Kernel Name", "a"), ("", "", "us"), ("0", NAME, "2")])
    return path


def test_files_have_a_row_per_launch_and_names_are_no_formulas(cli, tmp_path):
    file, output = named(tmp_path / "raw.csv"), tmp_path / "out.csv"
    ended = cli("counters", "import", str(file), "-o", str(output), "-o", str(tmp_path / "o.json"))
    assert ended.status == 0
    assert NAME in ended.stdout
    with output.open() as opened:
        (row,) = csv.DictReader(opened)
    assert (row["kernel"], row["a"]) == (f"'{NAME}", "2000.0")
    document = json.loads((tmp_path / "o.json").read_text())
    assert document["reports"][0]["launches"][0]["kernel"] == NAME


def test_names_with_line_breaks_and_escapes_stay_on_one_line(cli, tmp_path):
    text = named(tmp_path / "raw.csv").read_text()
    (tmp_path / "raw.csv").write_text(text.replace("<b>", "\n\x1b[2J"))
    ended = cli("counters", "import", str(tmp_path / "raw.csv"))
    assert ended.status == 0
    assert "\x1b" not in ended.stdout
    assert '   0  =HYPERLINK("http://x"), \N{REPLACEMENT CHARACTER}[2J[red]k' in ended.stdout


def test_json(cli):
    ended = cli("counters", "import", str(RAW), "--metric", "dram__bytes_read.sum", "--json")
    (report,) = json.loads(ended.stdout)["reports"]
    assert report["units"] == {"dram__bytes_read.sum": "byte", "gpu__time_duration.sum": "ns"}
    assert set(report["launches"][0]["metrics"]) == set(report["units"])


def test_exit_statuses_and_warnings(cli, tmp_path):
    cut, other = tmp_path / "cut.csv", tmp_path / "other.csv"
    cut.write_text(named(tmp_path / "raw.csv").read_text() + '"1","k')
    other.write_text("x")
    ended = cli("counters", "import", str(cut))
    assert ended.status == 0
    assert "warning: " in ended.stderr and "line 4" in ended.stderr
    assert cli("counters", "import", str(cut), str(other)).status == 1
    failed = cli("counters", "import", str(other))
    assert failed.status == 2
    assert "no hardware counters of kernels" in failed.stderr


def test_many_launches_are_not_all_printed(cli, tmp_path):
    file = tmp_path / "raw.csv"
    rows = "".join(f'"{number}","k","1"\n' for number in range(60))
    file.write_text('"ID","Kernel Name","a"\n"","",""\n' + rows)
    ended = cli("counters", "import", str(file))
    assert "10 more launches" in ended.stdout
    assert "  49  k\n" in ended.stdout and "  50  k\n" not in ended.stdout
