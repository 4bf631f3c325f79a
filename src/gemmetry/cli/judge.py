"""``gemmetry judge``: judge a submission that nobody trusts."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from gemmetry.cli.options import Brief, Written, argument, option
from gemmetry.domain.units import parse_bytes


def _parse_bytes(text: str, option: str) -> int:
    return parse_bytes(text)


@dataclass(kw_only=True)
class Judge(Brief, Written):
    submission: str = argument(
        "A .py file (function, ModelNew, custom_kernel), FILE:NAME, a Solution (.json) of "
        "FlashInfer-Bench, or a .cu file as FILE:NAME.",
        "SUBMISSION",
    )
    task: str = option(
        "An operation's name, a KernelBench problem (.py), a GPU MODE task.yml or its folder, or a "
        "FlashInfer-Bench Definition (.json).",
        "TASK",
    )
    workloads: Path | None = option(
        "Workloads of the Definition (.json or .jsonl), of which the first is taken.", "FILE"
    )
    level: str = option(
        "How many checks an operation gets: quick, standard or paranoid.", "NAME",
        default="standard",
    )  # fmt: skip
    seed: int | None = option("Of everything that is drawn; another one each time without it.", "N")
    time: bool = option("Time it, if it is right.", "--time/--no-time", default=True)
    limit: float = option("Seconds for a batch of launches.", "SECONDS", default=60.0)
    memory: int | None = option(
        "Limit of the submission's memory, such as 16GiB. Default: half of what is free.",
        "SIZE",
        parse=_parse_bytes,
    )
    threads: int = option("Threads of torch, for the submission and the baseline.", "N", default=1)


def judge(options: Judge) -> int:
    """Judge a submission: is it right, is it honest, and how fast is it?

    It runs in a confined process; reference, inputs, clock and verdict stay in this one. The
    verdict is ok, wrong, cheated or refused, with evidence. Exit status 1 unless it is ok.
    """
    from gemmetry.hardware.host import free_memory_bytes
    from gemmetry.judge.judging import Ruling
    from gemmetry.judge.judging import judge as judged
    from gemmetry.judge.submissions import read_submission
    from gemmetry.judge.tasks import read_task

    options.check()
    task = read_task(options.task, options.workloads)
    submission = read_submission(options.submission, task)
    memory = free_memory_bytes() // 2 if options.memory is None else options.memory
    found = judged(
        task, submission, level=options.level, seed=options.seed, time_it=options.time,
        limit_s=options.limit, memory_bytes=memory, threads=options.threads,
        command=shlex.join(["gemmetry", *sys.argv[1:]]),
    )  # fmt: skip
    options.deliver(
        found.result(is_brief=options.brief),
        lambda console: console.print(str(found), markup=False, highlight=False, soft_wrap=True),
    )
    return int(found.ruling is not Ruling.OK)
