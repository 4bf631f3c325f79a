from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks/bottlenecks/campaign.sh"

NCU = """#!/bin/sh
echo "$@" >>"$0.log"
case $1 in
--import) echo "page of $2" ;;
esac
"""


def test_each_part_is_profiled_and_exported(tmp_path: Path) -> None:
    ncu, python = tmp_path / "ncu", tmp_path / "python"
    ncu.write_text(NCU)
    python.write_text('#!/bin/sh\necho "$@" >>"$0.log"\nexit 3\n')
    for program in (ncu, python):
        program.chmod(0o755)
    done = subprocess.run(
        ["sh", str(SCRIPT), str(tmp_path / "results")],
        env={**os.environ, "NCU": str(ncu), "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("planted_severe", "planted_mild", "gemms"):
        page = (tmp_path / "results" / f"{name}.csv").read_text()
        assert page.endswith(f"/{name}.ncu-rep\n")
    profiled = [line for line in (tmp_path / "ncu.log").read_text().splitlines() if "--set" in line]
    assert [line.split(str(python))[1].split()[1:] for line in profiled[:2]] == [
        ["--variant", "severe"],
        ["--variant", "mild"],
    ]
    assert all("-k regex:_(mild|severe)$ " in line for line in profiled[:2])
    assert "--profile-from-start off" in profiled[2]
    assert "times ended with status 3" in done.stdout
    assert (tmp_path / "results/log.txt").read_text() == done.stdout
