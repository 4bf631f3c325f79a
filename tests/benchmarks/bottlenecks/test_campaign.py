from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks/bottlenecks/campaign.sh"

NCU = """#!/bin/sh
echo "$@" >>"$0.log"
case $1 in
--import) echo "page $5 of $2" ;;
esac
"""

PYTHON = """#!/bin/sh
echo "$@" >>"$0.log"
case "$*" in
*/planted_severe.ncu-rep*) # collecting the others fails
  while test "$1" != -o; do shift; done
  echo collected >"${2%.ncu-rep}.csv" ;;
esac
exit 3
"""


def test_each_part_is_collected_with_gemmetry_or_without_it(tmp_path: Path) -> None:
    ncu, python = tmp_path / "ncu", tmp_path / "python"
    for program, text in ((ncu, NCU), (python, PYTHON)):
        program.write_text(text)
        program.chmod(0o755)
    results = tmp_path / "results"
    done = subprocess.run(
        ["sh", str(SCRIPT), str(results)], capture_output=True, text=True, check=True,
        env={**os.environ, "NCU": str(ncu), "PYTHON": str(python)},
    )  # fmt: skip
    assert (results / "planted_severe.csv").read_text() == "collected\n"
    for name in ("planted_severe", "planted_mild", "gemms"):
        for kind, ending in (("raw", ""), ("details", "_details")):
            page = (results / f"{name}{ending}.csv").read_text()
            if (name, kind) != ("planted_severe", "raw"):
                assert page.startswith(f"page {kind} of ")
                assert page.endswith(f"/{name}.ncu-rep\n")
    started = (tmp_path / "python.log").read_text().splitlines()
    collected = [line for line in started if " counters collect " in line]
    for line, variant in zip(collected[:2], ("severe", "mild"), strict=True):
        assert line.split(str(python))[1].split()[1:3] == ["--variant", variant]
        assert " --set gemm --kernel _(mild|severe) -o " in line
    assert " --set gemm --nvtx profiled -o " in collected[2]
    mild, gemms = (
        line for line in (tmp_path / "ncu.log").read_text().splitlines() if "--set full" in line
    )
    assert " -k regex:_(mild|severe) -f " in mild
    assert " --nvtx --nvtx-include profiled] -f " in gemms
    assert "times ended with status 3" in done.stdout
    assert (results / "log.txt").read_text() == done.stdout
    assert not (results / "campaign.json").exists()  # Without a description, nothing is taken over.
