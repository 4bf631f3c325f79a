"""Prints ``docs/attacks.md``: what a judge and a usual harness make of every attack.

Takes minutes, as each attack is judged twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gemmetry.judge.judging import judge
from gemmetry.judge.submissions import Submission
from gemmetry.judge.tasks import read_task
from gemmetry.selftest.attacks import ATTACKS, TASK, Attack

_HEAD = f"""\
# Attacks

This page is generated: `python docs/generate/attacks.py > docs/attacks.md`, on a CPU. Each row is
a submission that claims to compute `{TASK}`
(`gemmetry/selftest/attacks.txt`). *In one process* is what many harnesses do: three trials with
random inputs, `torch.allclose` within 1 %, then a loop timed by `time.perf_counter` in the process
of the submission. *Accepted* means that it calls the attack right; no figure follows where the
process does not survive it.
"""

_HARNESS = """\
import time
import torch
from attack import f

torch.manual_seed(0)
right = True
for _ in range(3):
    a, b = torch.rand(64, 40), torch.rand(40, 48)
    right &= bool(torch.allclose(f(a, b), a @ b, rtol=1e-2, atol=1e-2))
began = time.perf_counter()
for _ in range(100):
    f(a, b)
ours = time.perf_counter() - began
print("accepted" if right else "refused")
"""

_LIMIT_S = 30
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "prlimit", "--as=17179869184")
"""In a process namespace, with which all that an attack starts ends; at most 16 GiB of memory."""


def in_one_process(attack: Attack) -> str:
    """What the usual harness says."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "attack.py").write_text(attack.text, encoding="utf-8")
        (Path(folder) / "harness.py").write_text(_HARNESS, encoding="utf-8")
        command = [*_ALONE, sys.executable, "harness.py"]
        try:
            found = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "does not end"
    lines = found.stdout.split()
    return lines[-1] if lines and lines[-1] in ("accepted", "refused") else "does not survive"


def rows() -> Iterator[str]:
    """The lines of the table."""
    task = read_task(TASK)
    for attack in ATTACKS:
        submission = Submission(
            name=attack.name, files={"attack.py": attack.text}, main="attack.py", entry="f"
        )
        found = judge(task, submission, limit_s=10, memory_bytes=2**34, seed=1)
        check = found.findings[0].check if found.findings else ""
        yield (
            f"| `{attack.name}` | {attack.what} | {found.ruling} | {check} | "
            f"{in_one_process(attack)} |"
        )


if __name__ == "__main__":
    sys.stdout.write(f"{_HEAD}\n| attack | what it does | gemmetry | by | in one process |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    for row in rows():
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
