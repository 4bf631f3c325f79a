"""The GitHub action's steps with the variables of a runner, on a repository of two commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gemmetry.domain.errors import RequestError
from gemmetry.judge.contest import compare_runs, main, read_times

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "compare_branches.sh"
KERNEL = "import numpy as np\n\n\ndef kernel():\n    return np.sort(np.arange({size})[::-1])\n"
TEST = """
from kernels import kernel


def test_kernel(kernel_benchmark):
    kernel_benchmark(kernel, cold=False)
"""
STAND_IN = f"""#!/bin/sh
case "$2" in
pytest)
  for file; do :; done
  size=$(sed -n 's/.*arange(\\([0-9]*\\)).*/\\1/p' kernels.py)
  entry='"fullname": "test_kernels.py::test_kernel", "extra_info": {{}}'
  echo "{{\\"benchmarks\\": [{{$entry, \\"stats\\": {{\\"data\\": [$size]}}}}]}}" > "$file" ;;
*) exec "{sys.executable}" "$@" ;;
esac
"""
"""An interpreter whose pytest takes as many seconds as the kernel's array has elements."""


def _git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    _git(folder, "init", "-q")
    (folder / "test_kernels.py").write_text(TEST)
    (folder / "kernels.py").write_text(KERNEL.format(size=2_000))
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "base")
    (folder / "kernels.py").write_text(KERNEL.format(size=60_000))
    return folder


def _run(repository: Path, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHON": sys.executable, "BASE": "HEAD", "RUNS": "1", "RUNNER_TEMP": str(tmp_path),
        "TESTS": "test_kernels.py -p no:xdist --kernel-benchmark-budget=0.1",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PYTHONPATH": ".",
    } | variables  # fmt: skip
    return subprocess.run(
        ["bash", str(SCRIPT)], cwd=repository, env=environment, capture_output=True, text=True
    )


def test_a_slower_branch_fails_and_the_summary_has_the_table(repository, tmp_path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    found = _run(repository, tmp_path, PYTHON=str(stand_in), RUNS="8")
    assert found.returncode == 1, found.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "test_kernels.py::test_kernel" in summary and "slower" in summary
    worktrees = ["git", "worktree", "list"]
    listed = subprocess.run(worktrees, cwd=repository, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


def test_tests_that_the_base_lacks_are_new(repository, tmp_path) -> None:
    (repository / "test_kernels.py").rename(repository / "test_more.py")
    more = "test_more.py -p no:xdist --kernel-benchmark-budget=0.1"
    found = _run(repository, tmp_path, TESTS=more)
    assert found.returncode == 0, found.stderr
    assert "| new |" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize(
    ("variables", "word"),
    [({"TESTS": ""}, "spec"), ({"TESTS": "nothing.py"}, ""), ({"RUNS": "0"}, "runs"),
     ({"BASE": ""}, "base"), ({"BASE": "nowhere"}, "nowhere")],
)  # fmt: skip
def test_inputs_that_make_no_sense(repository, tmp_path, variables, word) -> None:
    found = _run(repository, tmp_path, **variables)
    assert found.returncode == 2
    assert "::error::" in found.stderr and word in found.stderr


def test_the_action_passes_every_input_to_its_script() -> None:
    action, script = yaml.safe_load((ROOT / "action.yml").read_text()), SCRIPT.read_text()
    steps = action["runs"]["steps"]
    passed = {value for step in steps for value in step["env"].values()}
    assert passed == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    assert all(f"${name}" in script or f"${{{name}" in script for name in steps[-1]["env"])
    assert {step["shell"] for step in steps} == {"bash"}


def _runs(scale: float, count: int = 8) -> list[dict[str, list[list[float]]]]:
    return [
        {"a": [[scale * (100 + place + n) for n in range(5)]], "b": [[50.0 + place]]}
        for place in range(count)
    ]


def test_changes_by_run() -> None:
    def verdicts(before, after):
        return {one.name: one.verdict for one in compare_runs(before, after)}

    steady = "no difference shown"
    assert verdicts(_runs(1.0), _runs(1.2)) == {"a": "slower", "b": steady}
    assert verdicts(_runs(1.0), _runs(0.8)) == {"a": "faster", "b": steady}
    assert {*verdicts(_runs(1.0, 2), _runs(2.0, 2)).values()} == {"undecided"}
    assert {*verdicts(_runs(1.0), [{}]).values()} == {"gone"}


def test_results_of_a_profile_are_read(tmp_path, capsys) -> None:
    record = {"provider": "numpy", "dispatch": "matmul_x", "target": "cpu", "median_ns": 5.0}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"records": [record, record | {"median_ns": None}]}))
    command = ["--before", str(path), "--after", str(path)]
    assert list(read_times(path).values()) == [[[5.0]]]
    assert main(command) == 0
    assert "undecided" in capsys.readouterr().out
    for text in ("", "[]", '{"records": [3]}', '{"benchmarks": [{}]}'):
        path.write_text(text)
        with pytest.raises(RequestError):
            read_times(path)
        assert main(command) == 2
