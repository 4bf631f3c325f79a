"""Counts the mutants of a room's code that the room's tests let through.

The program cosmic-ray (on PATH, or by ``--cosmic-ray``) changes an operator, a number, a comparison
or a return at a time; ``--count`` of its mutants are drawn by the seed. Files are changed in place
and restored: run it in a clone of its own::

    git clone . ../clone && cd ../clone
    python benchmarks/mutations.py statistics --count 25
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

LEFT_OUT = ("core/ExceptionReplacer", "core/RemoveDecorator", "core/ReplaceBinaryOperator_BitOr")
"""Operators whose mutants mostly fail to import or, in annotations, change nothing."""


def main(given: Sequence[str] | None = None) -> int:
    """Print the survivors; the status is 1 if the tests fail without any mutant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("room", help="folder of src/gemmetry and of tests")
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="default: tests/ROOM")
    parser.add_argument("--cosmic-ray", default="cosmic-ray", metavar="PROGRAM")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a mutant")
    options = parser.parse_args(given)
    tests = options.tests or [f"tests/{options.room}"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    if subprocess.run(command, stdout=subprocess.DEVNULL, env=_environment()).returncode:
        print("the tests fail without a mutant")
        return 1
    session, file = Path(f"{options.room}.sqlite"), Path(f"{options.room}.toml")
    file.write_text(configuration(options.room, command, options.timeout))
    session.unlink(missing_ok=True)
    subprocess.run([options.cosmic_ray, "init", file, session], check=True, env=_environment())
    everything = draw(session, options.count, options.seed)
    subprocess.run([options.cosmic_ray, "exec", file, session], check=True, env=_environment())
    found = outcomes(session)
    counts = ", ".join(f"{count} {name}" for name, count in Counter(found.values()).items())
    print(f"{options.room}: {len(found)} of {everything} mutants, seed {options.seed}: {counts}")
    for place, outcome in found.items():
        if outcome == "survived":
            print(f"  {place}")
    return 0


def configuration(room: str, command: Sequence[str], timeout_s: float) -> str:
    """cosmic-ray's file of settings."""
    return (
        f'[cosmic-ray]\nmodule-path = "src/gemmetry/{room}"\ntimeout = {timeout_s}\n'
        f"excluded-modules = []\ntest-command = {json.dumps(' '.join(command))}\n"
        '[cosmic-ray.distributor]\nname = "local"\n'
    )


def draw(session: Path, count: int, seed: int) -> int:
    """Keep `count` mutants of a session; returns how many there were."""
    with sqlite3.connect(session) as base:
        rows = base.execute(
            "SELECT job_id, operator_name FROM mutation_specs ORDER BY module_path, start_pos_row, "
            "start_pos_col, operator_name, occurrence"
        ).fetchall()
        usable = [job for job, name in rows if not name.startswith(LEFT_OUT)]
        kept = set(random.Random(seed).sample(usable, min(count, len(usable))))
        others = [(job,) for job, _ in rows if job not in kept]
        for table in ("mutation_specs", "work_items"):
            base.executemany(f"DELETE FROM {table} WHERE job_id = ?", others)
    return len(usable)


def outcomes(session: Path) -> dict[str, str]:
    """Mutant (its place and operator) -> killed, survived or incompetent."""
    with sqlite3.connect(session) as base:
        rows = base.execute(
            "SELECT module_path, start_pos_row, operator_name, test_outcome FROM mutation_specs "
            "JOIN work_results USING (job_id) ORDER BY 1, 2"
        ).fetchall()
    return {f"{path}:{row} {name.partition('/')[2]}": outcome.lower()
            for path, row, name, outcome in rows}  # fmt: skip


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    sys.exit(main())
