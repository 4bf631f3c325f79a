"""Prints ``docs/attacks.md``: what a judge and other evaluations make of every attack.

Takes an hour, as each attack is judged up to five times; with ``--kept``, a run that was
interrupted goes on. Without the checkouts of the other projects, their columns are empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from harnesses import HARNESSES, LIMIT_S

from gemmetry.judge.judging import judge
from gemmetry.judge.tasks import Submission, read_task
from gemmetry.selftest.submissions import ATTACKS, TASK, Attack

_HEAD = """\
# Attacks

This page is generated: `python docs/generate/attacks.py > docs/attacks.md`, on a CPU, with
`--kernelbench`, `--gpumode` and `--flashinfer` for checkouts of the other projects:
{commits}.
Each row is a submission that claims to compute `{task}`
(`gemmetry/selftest/attacks.txt`). Attacks that need a GPU are not here (`gpu_attacks.txt`).

* *In one process* is what many harnesses do: three trials with random inputs, `torch.allclose`
  within 1 %, then a loop timed by `time.perf_counter` in the process of the submission.
* *KernelBench*: `eval_kernel_against_ref` with the settings of its scripts (5 trials, 100 timed
  ones, 1e-4). Its search for words in the source, which wants CUDA, is left out.
* *GPU MODE*: `pmpp_v2/eval.py`, the evaluation of its matmul task, in its modes `test` and
  `leaderboard`, with the tolerance of its f32 task (1e-3) and a secret seed.
* *FlashInfer-Bench*: `Benchmark.run_all` with its defaults (3 trials, 1e-2) and 60 s a solution.

Their code runs as it is, except for what demands a GPU (`docs/generate/cuda_on_cpu`): *cuda* is the
CPU, events read the host's clock, synchronizing and flushing the L2 do nothing, and CUPTI's timer
is replaced by events. On a GPU, attacks may end differently there. *Accepted* means that an
evaluation calls the attack right, *refused* that it does not; *does not survive* that it gives no
verdict, and *does not end* that it has none after {limit} s, when the project's own service would
end it. `–`: the attack aims at a part of gemmetry's judge. The last rows are right.

| attack | what it does | gemmetry | by | {columns} |
|---|---|---|---|{lines}
"""

_AT_OURS = {"writes_later", "recognises_sentinel", "forges_reply", "patches_child", "import_hook"}
"""They look for objects or messages of gemmetry's judge."""

_RIGHT = (
    Attack("right_torch", "torch's product", "def f(a, b):\n    return a @ b\n"),
    Attack("right_f64", "summed in f64, rounded once",
           "def f(a, b):\n    return (a.double() @ b.double()).float()\n"),
)  # fmt: skip


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    for one in HARNESSES[1:]:
        parser.add_argument(f"--{one.name}", type=Path, metavar="CHECKOUT")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="verdicts that are known")
    options = vars(parser.parse_args())
    file, checkouts = options["kept"], {**options, HARNESSES[0].name: Path()}
    known = json.loads(file.read_text()) if file and file.exists() else {}
    rows, accepted = [], Counter[str]()
    for attack in (*ATTACKS, *_RIGHT):
        name = f"`{attack.name}`" if attack in ATTACKS else f"right: {attack.what}"
        says = known.setdefault(name, {})
        if "gemmetry" not in says:
            says["gemmetry"] = _judged(attack)
        for one in HARNESSES:
            checkout = checkouts[one.name]
            is_fair = checkout is not None and attack.name not in _AT_OURS
            if one.name not in says:
                says[one.name] = one.says(attack.text, checkout) if is_fair else "–"
            if attack in ATTACKS:
                accepted[one.name] += says[one.name] == "accepted"
                accepted["of"] += one is HARNESSES[0] and is_fair
        rows.append([name, attack.what, *says["gemmetry"], *(says[one.name] for one in HARNESSES)])
        sys.stderr.write(f"{rows[-1]}\n")
        if file:
            file.write_text(json.dumps(known))
    counts = [f"{accepted[one.name]} of {accepted['of']}" for one in HARNESSES]
    ours = sum(row[2] == "ok" for row in rows[: len(ATTACKS)])
    rows.insert(len(ATTACKS), ["accepted", "", f"{ours} of {len(ATTACKS)}", "", *counts])
    commits = [
        f"{one.column} {_commit(path)}" for one in HARNESSES[1:] if (path := checkouts[one.name])
    ]
    head = _HEAD.format(
        task=TASK, commits=", ".join(commits) or "none", limit=LIMIT_S,
        lines="---|" * len(HARNESSES), columns=" | ".join(one.column for one in HARNESSES),
    )  # fmt: skip
    sys.stdout.write(head + "".join(f"| {' | '.join(row)} |\n" for row in rows))


def _judged(attack: Attack) -> tuple[str, str]:
    """gemmetry's verdict, and the check that found it."""
    submission = Submission(
        name=attack.name, files={"attack.py": attack.text}, main="attack.py", entry="f"
    )
    found = judge(read_task(TASK), submission, limit_s=10, memory_bytes=2**34, seed=1)
    return str(found.ruling), found.findings[0].check if found.findings else ""


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
