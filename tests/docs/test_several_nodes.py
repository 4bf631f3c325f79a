"""The scripts for several nodes, with stand-ins for ssh and for Slurm's commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "several_nodes"

SSH = """#!/bin/sh
while [ "$1" = -tt ] || [ "$1" = -o ]; do [ "$1" = -o ] && shift; shift; done
export HOST="$1"
shift
exec sh -c "$*"
"""
"""Runs the command here, with the host in HOST."""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Writes a program, which takes precedence over others of its name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return write


def launch(folder, *command):
    return subprocess.run(
        ["bash", str(SCRIPTS / "ssh_launcher.sh"), *command],
        cwd=folder, env={**os.environ, "HOSTS": "node01 node02"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_every_host_runs_the_command_as_it_was_written(stand_in, tmp_path):
    stand_in("ssh", SSH)
    folder = tmp_path / "a folder"
    folder.mkdir()
    script = 'echo "$HOST $1 $A" > "$HOST"'
    found = launch(folder, "env", "A=it's $HOME; *", "sh", "-c", script, "sh", "x  y")
    assert found.returncode == 0, found.stderr
    for host in ("node01", "node02"):
        assert (folder / host).read_text() == f"{host} x  y it's $HOME; *\n"


def test_a_host_that_fails_decides_the_exit_status(stand_in, tmp_path):
    stand_in("ssh", SSH)
    found = launch(tmp_path, "sh", "-c", '[ "$HOST" = node02 ] && exit 3; exit 0')
    assert found.returncode == 3


def test_the_script_for_slurm(stand_in, tmp_path):
    stand_in("scontrol", '#!/bin/sh\n[ "$3" = "node[01-02]" ] && echo node01 && echo node02\n')
    stand_in("srun", "#!/bin/sh\n")
    stand_in("gemmetry", f'#!/bin/sh\nexec {sys.executable} -m gemmetry "$@"\n')
    slurm = {"SLURM_JOB_NODELIST": "node[01-02]", "SLURM_JOB_NUM_NODES": "2"}
    found = subprocess.run(
        ["bash", str(SCRIPTS / "sweep.sbatch"), "--channels", "16", "--config", "tiny",
         "-o", "my-sweep", "--dry-run"],
        cwd=tmp_path, env={**os.environ, **slurm}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "srun --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 env " in found.stdout
    assert "--nproc-per-node 8 --nnodes 2" in found.stdout
    assert "--rdzv-endpoint node01:29500" in found.stdout
