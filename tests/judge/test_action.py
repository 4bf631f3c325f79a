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
        "PYTHON": sys.executable, "BASE": "HEAD", "RUNS": "4", "RUNNER_TEMP": str(tmp_path),
        "TESTS": "test_kernels.py -p no:xdist --kernel-benchmark-budget=0.1",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PYTHONPATH": ".",
    } | variables  # fmt: skip
    return subprocess.run(
        ["bash", str(SCRIPT)], cwd=repository, env=environment, capture_output=True, text=True
    )


def test_a_slower_branch_fails_and_the_summary_has_the_table(repository, tmp_path) -> None:
    found = _run(repository, tmp_path)
    assert found.returncode == 1, found.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "test_kernels.py::test_kernel" in summary and "slower" in summary
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == 1


def test_tests_that_the_base_lacks_are_new(repository, tmp_path) -> None:
    (repository / "test_kernels.py").rename(repository / "test_more.py")
    more = "test_more.py -p no:xdist --kernel-benchmark-budget=0.1"
    found = _run(repository, tmp_path, TESTS=more, RUNS="1")
    assert found.returncode == 0, found.stderr
    assert "| new |" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"TESTS": ""}, "spec"),
        ({"TESTS": "nothing.py", "RUNS": "1"}, ""),
        ({"RUNS": "0"}, "runs"),
        ({"BASE": ""}, "base"),
        ({"BASE": "nowhere"}, "nowhere"),
    ],
)
def test_inputs_that_make_no_sense(repository, tmp_path, variables, word) -> None:
    found = _run(repository, tmp_path, **variables)
    assert found.returncode == 2
    assert "::error::" in found.stderr and word in found.stderr


def test_the_action_passes_every_input_to_its_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    passed = {value for step in action["runs"]["steps"] for value in step["env"].values()}
    assert passed == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    script = SCRIPT.read_text()
    for name in action["runs"]["steps"][-1]["env"]:
        assert f"${name}" in script or f"${{{name}" in script
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"


def _runs(scale: float, count: int = 8) -> list[dict[str, list[list[float]]]]:
    return [
        {"a": [[scale * (100 + place + n) for n in range(5)]], "b": [[50.0 + place]]}
        for place in range(count)
    ]


def test_changes_by_run() -> None:
    found = {one.name: one.verdict for one in compare_runs(_runs(1.0), _runs(1.2))}
    assert found == {"a": "slower", "b": "no difference shown"}
    assert next(one.verdict for one in compare_runs(_runs(1.0), _runs(0.8))) == "faster"
    assert {one.verdict for one in compare_runs(_runs(1.0, 2), _runs(2.0, 2))} == {"undecided"}
    assert {one.verdict for one in compare_runs(_runs(1.0), [{}])} == {"gone"}


def test_results_of_a_profile_are_read(tmp_path, capsys) -> None:
    record = {"provider": "numpy", "dispatch": "matmul_x", "target": "cpu", "median_ns": 5.0}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"records": [record, record | {"median_ns": None}]}))
    assert list(read_times(path).values()) == [[[5.0]]]
    assert main(["--before", str(path), "--after", str(path)]) == 0
    assert "undecided" in capsys.readouterr().out
    for text in ("", "[]", '{"records": [3]}', '{"benchmarks": [{}]}'):
        path.write_text(text)
        with pytest.raises(RequestError):
            read_times(path)
        assert main(["--before", str(path), "--after", str(path)]) == 2
