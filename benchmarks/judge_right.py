"""How many right submissions, of every kind and form, the judge calls right: all should be ``ok``.

    python benchmarks/judge_right.py [--level standard] [--only KIND]

Prints each that is not, and the count; ends with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from gemmetry.judge.judging import Ruling, judge
from gemmetry.judge.tasks import read_submission, read_task
from gemmetry.selftest.submissions import RIGHT


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--level", default="standard")
    parser.add_argument("--only", help="one kind")
    options = parser.parse_args()
    chosen = [one for one in RIGHT if options.only in (None, one.kind)]
    wrong = 0
    for one in chosen:
        with tempfile.TemporaryDirectory() as folder:
            name, path = one.write(Path(folder))
            task = read_task(name)
            submission = read_submission(path, task)
            found = judge(task, submission, level=options.level, time_it=False, memory_bytes=2**34)
        if found.ruling is not Ruling.OK:
            wrong += 1
            print(f"{one.name}: {found}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} right submissions are ok")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
