"""End of a training run, as shown by its log."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 64 * 1024

_CRASH = re.compile(
    r"Traceback \(most recent call last\)|ChildFailedError|Segmentation fault|core dumped"
    r"|(?:CUDA|HIP|NCCL|RCCL|ncclUnhandledCuda\w*) [Ee]rror|\bSIG(?:SEGV|ABRT|KILL|BUS)\b"
    r"|out of memory|Watchdog caught collective operation timeout"
)
"""Signs of a crash: Python, torchrun (torch/distributed/elastic/multiprocessing/errors), shells,
and the libraries of GPUs."""

_ERROR = re.compile(
    r"(?:\[rank\d+\]: ?)?((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b:?.*)"
    r"|(Fatal Python error: .*)"
)
"""The last line of a traceback, and what Python's fault handler prints."""

_OF_WORKLOAD = re.compile(r"rank \d+: error: .*")
"""The error of a rank of gemmetry's own workload; torchrun repeats it as a traceback."""

_SIGNAL = re.compile(r"Signal \d+ \(SIG\w+\) received by PID \d+")
"""Line of torchrun's report for a process without an error; the first one to fail comes last."""

_MOST_CHARACTERS = 200


def crash_in(log: Path) -> str:
    """The line of `log` that states why the run crashed: the last error, else the signal that ended
    a process, else the sign of a crash; "" if the last 64 KiB show none, or there is no log."""
    lines = _tail(log).splitlines()
    signs = [line.strip() for line in lines if _CRASH.search(line)]
    if not signs:
        return ""
    explained = [line.strip() for line in lines if _OF_WORKLOAD.fullmatch(line.strip())]
    errors = [found[1] or found[2] for line in lines if (found := _ERROR.fullmatch(line.strip()))]
    # torchrun's own report comes last; it only states that a process failed.
    own = [error for error in errors if "ChildFailedError" not in error]
    signals = [found[0] for line in lines if (found := _SIGNAL.search(line))]
    return (explained or own or signals or errors or signs)[-1][:_MOST_CHARACTERS]


def last_line(log: Path) -> str:
    """The last line of `log` that is not empty; "" if there is none."""
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    return lines[-1][:_MOST_CHARACTERS] if lines else ""


def log_tail(log: Path, size: int = 4000) -> str:
    """The end of `log`, about `size` bytes of it in whole lines; "" if it cannot be read."""
    text = _tail(log)
    lines = text[-size:]
    return lines.partition("\n")[2] or lines if len(text) > size else lines


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
