"""Agents as tasks of one Slurm job array.

An array is one submission, one line of ``squeue`` for the administrator and one ``scancel``, and
its tasks start one by one as resources become free, so that the first agent does not wait for the
last one. Neither accounting (``slurmdbd``, ``sacct``) nor ``srun`` is needed.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmetry.domain.errors import EnvironmentFailure, RequestError, listed
from gemmetry.domain.files import completed
from gemmetry.domain.units import counted, noun_for
from gemmetry.engine.agents.starting import AgentRequest
from gemmetry.formats.run_log import log_tail

SCRIPT, TOKEN = "agents.sbatch", "agents.token"

POLL_S = 5.0
"""The least time between two calls of ``squeue``, which the controller of a large cluster answers
for all of its users."""

MOST_POLL_S = 30.0
"""The time between two calls when nothing changes. A lost agent is noticed by its connection long
before; ``squeue`` adds the reason."""

CALL_S = 60.0
"""How long one call of Slurm may take: a busy controller lets its clients wait."""

_OWN = {
    "array",
    "devices",
    "error",
    "job-name",
    "ntasks",
    "nodes",
    "open-mode",
    "output",
    "parsable",
    "wrap",
}
"""Options of ``sbatch`` that the script itself sets, or that have no use in it."""

_NOT_OF_SBATCH = ("python", "setup")

_LARGEST_RESOURCES = ("exclusive", "gres", "gpus", "gpus-per-node", "gpus-per-task", "licenses",
                      "tres-per-task")  # fmt: skip
_PROCESSORS = ("exclusive", "cpus-per-task", "mincpus")

_ENDED = {
    "BOOT_FAIL": "its node did not start",
    "CANCELLED": "it was cancelled (scancel)",
    "COMPLETED": "",
    "DEADLINE": "its deadline in Slurm passed",
    "FAILED": "it ended with an error or was killed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than its job may; request more with mem=",
    "PREEMPTED": "another job preempted it",
    "REVOKED": "another cluster took its job",
    "TIMEOUT": "its time limit passed; request more with time=",
}
"""States of ``squeue(1)`` that are final, and what is wrong. All others are waiting or running."""

_USUAL_WAITS = {"", "None", "BeginTime", "Cleaning", "JobArrayTaskLimit", "Licenses", "Priority",
                "Resources"}  # fmt: skip
"""Reasons of pending jobs that pass by themselves."""


class SlurmStarter:
    """Submits a job array with ``sbatch``, one task for each agent.

    Every option is one of ``sbatch`` by its long name (``partition=gpu``, ``time=2:00:00``; empty
    for one without a value, ``exclusive=``), except for ``python``, the interpreter on the nodes
    (default: this one), and ``setup``, a line of shell that runs first, such as
    ``module load cuda``.
    """

    name = "slurm"

    def available(self) -> str | None:
        """Whether Slurm's commands are installed here."""
        missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
        if not missing:
            return None
        are = noun_for(len(missing), "is", "are")
        return (
            f"{', '.join(missing)} {are} not on PATH: start gemmetry on a login node of the cluster"
        )

    def check(self, options: Mapping[str, str], count: int) -> None:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        _check({name: text for name, text in options.items() if name not in _NOT_OF_SBATCH})

    def start(self, request: AgentRequest) -> SlurmAgents:
        """Submit the job; it may wait in the queue for any time.

        Raises:
            RequestError: an option is not valid.
            EnvironmentFailure: sbatch refused the job.
            OSError: the script cannot be written.
        """
        folder = request.folder.absolute()
        script, token = folder / SCRIPT, folder / TOKEN
        text = job_script(request, folder, token)
        _write_private(token, request.token_file.read_bytes())
        try:
            script.write_text(text)
            job = _submit(script)
        except BaseException:
            token.unlink(missing_ok=True)
            raise
        return SlurmAgents(job, request.count, folder, token)


def job_script(request: AgentRequest, folder: Path, token: Path) -> str:
    """The script of the job array, with its options as comments, so that it can be submitted by
    hand as well.

    Raises:
        RequestError: an option is not valid.
    """
    options = dict(request.options)
    python, setup = options.pop("python", sys.executable), options.pop("setup", "")
    _check(options)
    if request.target.is_gpu and not any(name in options for name in _LARGEST_RESOURCES):
        options["gres"] = "gpu:1"
    if not request.target.is_gpu and not any(name in options for name in _PROCESSORS):
        # Jobs of others on the same processors would be measured as well.
        options["exclusive"] = ""
    device = request.target.device
    if request.target.is_gpu:
        device = f"{request.target.kind}:0"  # Slurm shows a job its own devices only.
    settings = {
        "job-name": f"gemmetry-{secrets.token_hex(4)}",
        "array": f"0-{request.count - 1}",
        "nodes": "1",
        "ntasks": "1",
        "output": str(folder).replace("%", "%%") + "/agent-%a.log",
        "open-mode": "append",
        "requeue": "",
        **options,
    }
    lines = (
        f"#SBATCH --{key}={_quoted(value)}" if value else f"#SBATCH --{key}"
        for key, value in settings.items()
    )  # fmt: skip
    command = [python, "-m", "gemmetry", "agent", "--connect", request.connect,
               "--token-file", str(token), "--device", device]  # fmt: skip
    name = "slurm-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    return "\n".join((
        "#!/bin/bash", *lines, *([setup] if setup else []),
        f'exec {shlex.join(command)} --name "{name}"', "",
    ))  # fmt: skip


class SlurmAgents:
    """The agents of one job array, watched by a thread that calls ``squeue``."""

    def __init__(self, job: str, count: int, folder: Path, token: Path) -> None:
        """`job`: the number of the array; `token`: the copy of the token that its tasks read."""
        self.job = job
        self._folder = folder
        self._token = token
        self._states: dict[int, str] = dict.fromkeys(range(count), "PENDING")
        self._news: list[str] = []
        self._waits: set[str] = set()
        self._reported_waits: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._poll, name=f"slurm {job}", daemon=True)
        self._watch.start()

    def problems(self) -> Sequence[str]:
        """See :class:`gemmetry.engine.agents.starting.StartedAgents`."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def running(self) -> int:
        """The tasks that wait or run, as Slurm last listed them."""
        with self._lock:
            return sum(state not in _ENDED for state in self._states.values())

    def queued(self) -> int:
        """The tasks that Slurm last listed as pending."""
        with self._lock:
            return sum(state == "PENDING" for state in self._states.values())

    def close(self) -> None:
        """Cancel the tasks that have not ended, and remove the token's copy."""
        if self._closed.is_set():
            return
        self._closed.set()
        _call("scancel", self.job)  # Tasks that cannot be cancelled end without their driver.
        self._token.unlink(missing_ok=True)

    def _poll(self) -> None:
        pause, failing = POLL_S, False
        while not self._closed.wait(pause):
            started = time.monotonic()
            status, output, error = _call(
                "squeue", "--noheader", "--array", "--me", "--states=all",
                "--format=%i|%T|%r|%N",
            )  # fmt: skip
            if self._closed.is_set():
                return
            with self._lock:
                changed = status == 0 and self._note(tasks_of(self.job, output))
                if status != 0 and not failing:
                    self._news.append(
                        f"squeue fails, so that agents of job {self.job} are known by their "
                        f"connections alone: {_message(error)}"
                    )
            failing = status != 0
            # A controller that answers slowly has much to do.
            least = max(POLL_S, 20 * (time.monotonic() - started))
            pause = least if changed else max(least, min(1.5 * pause, MOST_POLL_S))

    def _note(self, tasks: Mapping[int, tuple[str, str, str]]) -> bool:
        """Whether a state has changed since the last call."""
        changed = False
        waits = defaultdict(list)
        for number, before in self._states.items():
            # Slurm forgets a job some minutes after its end (MinJobAge in slurm.conf(5)).
            state, reason, node = tasks.get(number, ("COMPLETED", "", ""))
            if state == "PENDING" and reason not in _USUAL_WAITS:
                waits[reason].append(number)
            if state == before or before in _ENDED:
                continue
            changed, self._states[number] = True, state
            if _ENDED.get(state):
                self._news.append(self._ended(number, _ENDED[state], node))
            elif state == "PENDING":
                self._news.append(
                    f"agent {number} of job {self.job} lost its node and waits in the queue again"
                )
        for reason, numbers in waits.items():
            # Right after it was submitted a job may have a reason that passes.
            if reason in self._waits - self._reported_waits:
                self._reported_waits.add(reason)
                self._news.append(
                    f"{counted(len(numbers), 'agent')} of job {self.job} "
                    f"{noun_for(len(numbers), 'waits', 'wait')} in Slurm's queue: {reason} "
                    f"(squeue --job {self.job})"
                )
        self._waits = set(waits)
        return changed

    def _ended(self, number: int, why: str, node: str) -> str:
        log = self._folder / f"agent-{number}.log"
        tail = log_tail(log, 1000).strip()
        at = f" on {node}" if node else ""
        end = f"; the end of {log}:\n{tail}" if tail else f"; {log} is empty"
        return f"agent {number} of job {self.job}{at}: {why}{end}"


def tasks_of(job: str, text: str) -> dict[int, tuple[str, str, str]]:
    """State, reason and node of each task of the array `job`, in the output of ``squeue``."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition("|")
        array, _, number = name.partition("_")
        fields = rest.split("|")
        if array == job and number.isdigit() and len(fields) == 3:
            found[int(number)] = (fields[0], fields[1], fields[2])
    return found


def _submit(script: Path) -> str:
    """The number of the job."""
    status, output, error = _call("sbatch", "--parsable", str(script))
    # With several clusters the answer is NUMBER;CLUSTER.
    job = output.strip().partition(";")[0]
    if status != 0 or not job.isdigit():
        # A controller that cannot be reached answers no other command either.
        if _call("squeue", "--noheader")[0] != 0:
            raise EnvironmentFailure(
                "the controller of Slurm does not answer, so that the job of the agents was not "
                f"submitted: {_message(error or output)}",
                hint="sinfo shows whether it can be reached from this host. Nothing is lost: the "
                "same command starts the agents when it answers.",
            )
        raise EnvironmentFailure(
            f"sbatch refused the job of the agents: {_message(error or output)}",
            hint="Correct the options of the executor slurm, which are those of sbatch. "
            f"sbatch {shlex.quote(str(script))} tries the script again by hand.",
        )
    return job


def _check(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z-]*", name) or "\n" in value:
            raise RequestError(
                f"the executor slurm has no option {name!r}",
                hint="Give options of sbatch by their long names, such as partition=gpu.",
            )
    own = sorted(_OWN & options.keys())
    if own:
        raise RequestError(
            f"the executor slurm sets {listed(own, 3)} itself",
            hint="Leave it out. --agents is the number of jobs, and Slurm chooses their devices.",
        )


def _call(*command: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command of Slurm."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_S
        )
    except subprocess.TimeoutExpired:
        return 1, "", f"{command[0]} took longer than {CALL_S:g} s"
    except OSError as error:
        return 1, "", str(error)
    return ended.returncode, ended.stdout, ended.stderr


def _message(text: str) -> str:
    """The lines that a command printed as one."""
    lines = [re.sub(r"^(?:\w+: )?(?:error: )?", "", line.strip()) for line in text.splitlines()]
    return "; ".join(line for line in lines if line) or "it gave no reason"


def _quoted(value: str) -> str:
    """`value` as Slurm reads it in a script's comment."""
    return value if re.fullmatch(r"[\w@+=:,./%-]+", value) else shlex.quote(value)


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, from its first byte on."""
    with completed(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


STARTER = SlurmStarter()
