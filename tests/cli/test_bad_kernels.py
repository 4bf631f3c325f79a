"""Kernels that do what no kernel should, run from the command line: each gets an outcome with its
reason, and the others get their results."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from gemmetry.engine.guardian import descendants
from gemmetry.verification.comparison import load

pytest.importorskip("torch")

KERNELS = """
import ctypes, os, resource, signal, stat, struct, subprocess, threading, time

import numpy as np
import torch

launches, left = [], []


def right(a, b):
    return a @ b


def spoils(a, b):
    os.environ["SPOILED"] = "yes"  # as what damages memory, or leaves threads
    return 0 * (a @ b)


def runs_out_if_spoiled(a, b):
    if "SPOILED" in os.environ:
        raise MemoryError("no memory is left")
    return a @ b


def dies_if_spoiled(a, b):
    if "SPOILED" in os.environ:
        os.kill(os.getpid(), signal.SIGSEGV)
    return a @ b


def writes_outside(a, b, out):
    torch.matmul(a, b, out=out)
    end = out.data_ptr() + out.numel() * out.element_size()
    ctypes.memset(end, 0, 8)


def mutates_inputs(a, b):
    result = a @ b
    a.mul_(2)
    return result


def returns_a_view(a, b):
    a[:, : b.shape[1]] = a @ b
    return a[:, : b.shape[1]]


def allocates_without_end(a, b):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (128 << 20),) * 2)
    kept = []
    while True:
        kept.append(np.ones(4 << 20, np.uint8))


def never_returns(a, b):
    while True:
        time.sleep(3600)


def writes_later(a, b, out):
    def work():
        time.sleep(2)  # long after the first look, on a busy machine too
        torch.matmul(a, b, out=out)

    os.environ["SPOILED"] = "yes"  # also where second chances would follow
    threading.Thread(target=work, daemon=True).start()


def on_channels(data):
    for number in map(int, os.listdir("/dev/fd")):
        try:
            if number > 2 and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, data)
        except OSError:
            pass


def writes_noise(a, b):
    on_channels(b"noise, and more of it")
    return a @ b


def writes_half_a_frame(a, b):
    on_channels(struct.pack("<I", 60_000_000) + b"x" * 100)
    os._exit(7)


def writes_an_answer(a, b):
    on_channels(struct.pack("<I", 10) + bytes([0x91, 0xA8]) + b"Answered")
    return a @ b


def empties_the_checks(a, b):
    from gemmetry.verification import protocol

    protocol.CHECKS = ()
    return 0 * (a @ b)


def forks_when_timed(a, b):
    launches.append(1)
    if len(launches) == 20:
        os.fork()
    return a @ b


def leaves_a_copy(a, b):
    if os.fork() == 0:
        time.sleep(1000)
    return a @ b


def leaves_a_process(a, b):
    if not left:
        left.append(subprocess.Popen(["sleep", "1234"], start_new_session=True))
    return a @ b


def leaves_a_process_and_dies(a, b):
    # Popen returns when the process has its own session and its name.
    subprocess.Popen(["sleep", "4321"], start_new_session=True, stdout=subprocess.DEVNULL)
    open(os.path.join(os.environ["TMPDIR"], "cc1.s"), "w").close()
    os.abort()
"""

BAD = {
    "right": ("ok", ""),
    "spoils": ("wrong", "every wrong element is 0"),
    "runs_out_if_spoiled": ("ok", ""),
    "dies_if_spoiled": ("ok", ""),
    "writes_outside": ("wrong", "wrote outside the buffer of result"),
    "mutates_inputs": ("wrong", "the launch changed lhs"),
    "returns_a_view": ("launch_error", "a view of one of its inputs"),
    "allocates_without_end": ("out_of_memory", "Unable to allocate"),
    "never_returns": ("timeout", "verifying took longer than 20 s"),
    "writes_later": ("wrong", "never written"),
}
"""Function -> its outcome, and words of the reason."""

HOSTILE = {
    "writes_noise": ("crash", "channel carried what no worker sends"),
    "writes_half_a_frame": ("crash", "ended with status 7"),
    "writes_an_answer": ("crash", "reported the end before it had answered"),
    "empties_the_checks": ("crash", "a verdict without a result of the check written"),
    "forks_when_timed": ("launch_error", "the kernel forks and"),
    "leaves_a_copy": ("launch_error", "the kernel forks and leaves a copy of the process"),
    "leaves_a_process": ("ok", ""),
    "leaves_a_process_and_dies": ("crash", "SIGABRT"),
}
"""The same of kernels that turn on the run itself."""


def _swept(run_in, folder, ends, *options):
    """The records of one sweep over these kernels, by function."""
    (folder / "bad.py").write_text(KERNELS)
    found = run_in.json(
        folder, "profile", "--providers", "user", "--shapes", "48x32x40", "--dtypes", "f32",
        "--device", "cpu", "--experiment", "e", "--max-samples", "10", "--time-budget", "50ms",
        "--kernel", ",".join(f"bad.py:{name}" for name in ends), *options, status=1,
    )["records"]  # fmt: skip
    return {record["configuration"].removesuffix("_default"): record for record in found}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [tmp_path_factory.mktemp(name) for name in ("bad", "hostile")]


@pytest.fixture(scope="module")
def records(run_in, folders):
    """Records of all kernels, by function. Hostile kernels are verified briefly: one forks when
    it is timed."""
    return _swept(run_in, folders[0], BAD, "--set", "deadlines.verify=20") | _swept(
        run_in, folders[1], HOSTILE, "--verification-level", "quick"
    )


@pytest.mark.parametrize("name", BAD | HOSTILE)
def test_each_costs_its_own_row_with_its_reason_and_the_right_one_is_measured(records, name):
    record = records[name]
    outcome, words = (BAD | HOSTILE)[name]
    assert record["outcome"] == outcome, record["reason"]
    assert words in (record["reason"] or "")
    assert bool(record["median_ns"]) == (outcome == "ok")


def test_evidence_is_kept_and_shown_and_its_command_repeats_the_failure(records, folders, run_in):
    folder, record = folders[0], records["writes_later"]
    place = folder / "e" / record["evidence_path"]
    found = load(place)
    assert (found.check, found.operation.shape[:3]) == ("written", (48, 32, 40))
    assert found.output.shape == (48, 32)
    text = (place / "failure.txt").read_text()
    assert record["reason"] in text
    command = shlex.split(text.rpartition("again")[2])
    assert command[:3] == ["gemmetry", "verify", "run"]
    more_time = ("--set", "deadlines.verify=60")
    (again,) = run_in.json(folder, *command[1:], *more_time, status=1)["records"]
    assert (again["outcome"], again["reason"]) == ("wrong", record["reason"])
    shown = run_in(folder, "show", "e", "mutates_inputs").stdout
    assert "e/artifacts/failures/cpu/user/" in shown
    assert "Error map" in shown
    assert "gemmetry verify run " in shown


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are found on Linux")
def test_processes_that_a_kernel_leaves_are_ended_and_reported(records, folders):
    (mark,) = [m for m in records["leaves_a_process"]["marks"] if m.startswith("left running")]
    # One in each worker; workers that other kernels end are replaced.
    assert re.search(r"left .* running in .* own, now ended: sleep 1234 ", mark)
    assert "now ended: sleep 4321" in records["leaves_a_process_and_dies"]["reason"]
    running = [process.name for process in descendants(1)]
    assert not {"sleep 1234", "sleep 4321"} & set(running)
    assert not (folders[1] / "e/temporary").exists()
