"""``gemmetry judge``: judge submissions that nobody trusts, here or for others."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from gemmetry.cli.console import note
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    Brief,
    Options,
    Written,
    argument,
    option,
    parse_duration,
    split_names,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import parse_bytes


def _parse_bytes(text: str, option: str) -> int:
    return parse_bytes(text)


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
    device: str = option("Where submissions run: cpu, cuda:0.", "NAME", default="cpu")
    libraries: bool = option(
        "Vendors' libraries, such as cuBLAS, and torch's products may be called.",
        "--libraries/--no-libraries",
        default=True,
    )


def judge(options: Judge) -> int:
    """Judge a submission: is it right, is it honest, and how fast is it?

    It runs in a confined process; reference, inputs, clock and verdict stay in this one. The
    verdict is ok, wrong, cheated or refused, with evidence. Exit status 1 unless it is ok.
    """
    from gemmetry.hardware.host import free_memory_bytes
    from gemmetry.judge.judging import Ruling
    from gemmetry.judge.judging import judge as judged
    from gemmetry.judge.tasks import read_submission, read_task

    options.check()
    task = read_task(options.task, options.workloads)
    task = replace(task, allows_libraries=options.libraries)
    submission = read_submission(options.submission, task)
    memory = free_memory_bytes() // 2 if options.memory is None else options.memory
    found = judged(
        task, submission, level=options.level, seed=options.seed, time_it=options.time,
        limit_s=options.limit, memory_bytes=memory, threads=options.threads,
        device=options.device,
        command=shlex.join(["gemmetry", *sys.argv[1:]]),
    )  # fmt: skip
    options.deliver(
        found.result(is_brief=options.brief),
        lambda console: console.print(str(found), markup=False, highlight=False, soft_wrap=True),
    )
    return int(found.ruling is not Ruling.OK)


class Tasks(Options):
    tasks: Path | None = option(
        "Folder of tasks that may be named besides operations. They are trusted code.", "DIR"
    )


class Serve(Tasks):
    host: str = option("Address to listen on.", "HOST", default="127.0.0.1")
    port: int = option("Port to listen on; 0: one that is free.", "N", default=8765, min=0)
    device: list[str] = option(
        "Devices with a queue each: cpu, cuda:0. Default: cpu.", "NAMES", parse=split_names
    )
    token_file: Path | None = option(
        "File with the token that clients send. Default: the variable GEMMETRY_JUDGE_TOKEN, or a "
        "new one, which is printed.",
        "FILE",
    )
    waiting: int = option("Submissions that wait for a device.", "N", default=256, min=1)
    kept: int = option("Verdicts that are kept.", "N", default=1000, min=1)
    deadline: float = option("Longest judgement.", "TIME", default="10min", parse=parse_duration)


def serve(options: Serve) -> None:
    """Judge submissions over HTTP: POST /evaluate, GET /tasks/{id}, GET /health.

    Each judgement is a process of its own; each device judges one at a time. Requests need
    "Authorization: Bearer TOKEN".
    """
    from gemmetry.judge.service import TOKEN, Limits, serve_forever

    limits = Limits(
        devices=tuple(options.device) or ("cpu",), tasks=options.tasks, waiting=options.waiting,
        kept=options.kept, deadline_s=options.deadline,
    )  # fmt: skip
    token = os.environ.get(TOKEN, "")
    if options.token_file is not None:
        token = options.token_file.read_text().strip()
        if not token:
            raise RequestError(f"{options.token_file} is empty", hint="Write a long random text.")
    serve_forever(limits, options.host, options.port, token, note)


def mcp(options: Tasks) -> None:
    """Offer judge, explain, profile and compare as tools to a model (Model Context Protocol).

    A client starts this command and talks to it by its standard input and output.
    """
    from gemmetry.judge.service import tools

    tools(options.tasks).run("stdio")


app = group_app(
    "Judge submissions: right, honest, and how fast? gemmetry judge SUBMISSION is gemmetry judge "
    "run SUBMISSION.",
    {"run": judge, "serve": serve, "mcp": mcp},
    usual="run",
)
