from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gemmetry.cli.main import load_command
from gemmetry.cli.trace_command import COMMANDS


def test_every_command_of_the_group_is_there(cli):
    ended = cli("trace", "--help")
    assert ended.status == 0
    for name in COMMANDS:
        assert f" {name} " in ended.stdout


def test_a_mistyped_command_is_told_the_nearest(cli):
    ended = cli("trace", "repotr")
    assert ended.status == 2
    assert "report" in ended.stderr


def test_a_command_is_made_when_it_is_asked_for():
    group = load_command("trace")
    assert group.commands == {}
    assert group.get_command(None, "report").name == "report"
    assert set(group.commands) == {"report"}
    assert group.get_command(None, "nothing") is None


_SCRIPT = """
import sys
from gemmetry.cli.main import run

status = run(["trace", "report", sys.argv[1], "--no-cache", "-o", sys.argv[2]])
heavy = {"polars", "torch", "jinja2", "rich.console", "plotly", "matplotlib"}
print(status, sorted(heavy & set(sys.modules)))
"""


def test_a_workbook_does_not_load_what_it_does_not_need(tmp_path):
    trace = Path(__file__).parents[1] / "data" / "traces" / "h200_matmul.pt.trace.json.gz"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(trace), str(tmp_path / "r.xlsx")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0 []"
