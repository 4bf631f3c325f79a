"""Kernels that do what no kernel should, run from the command line: each gets an outcome with its
reason, and the others get their results."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from gemmetry.engine.guardian import descendants
from gemmetry.verification.comparison import load

pytest.importorskip("torch")

SHAPE = "48x32x40"

KERNELS = """
import ctypes
import threading
import time

import numpy as np
import torch

calls = 0


def right(a, b):
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


def wrong_dtype(a, b):
    return (a @ b).to(torch.float64)


def wrong_shape(a, b):
    return (a @ b)[:-1]


def allocates_without_end(a, b):
    import resource
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

    threading.Thread(target=work, daemon=True).start()


def spoils_later(a, b, out):
    torch.matmul(a, b, out=out)

    def work():
        # However late a look comes, a change follows it.
        for value in range(1, 9):
            time.sleep(0.1)
            out.fill_(value)

    threading.Thread(target=work, daemon=True).start()


def raises_in_half(a, b):
    global calls
    calls += 1
    if calls % 2 == 0:
        raise RuntimeError(f"call {calls} has had enough")
    return a @ b


def kills_itself(a, b):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""

BAD = {
    "right": ("ok", ""),
    "writes_outside": ("wrong", "wrote outside the buffer of result"),
    "mutates_inputs": ("wrong", "the launch changed lhs"),
    "returns_a_view": ("launch_error", "a view of one of its inputs"),
    "wrong_dtype": ("launch_error", "torch.float64"),
    "wrong_shape": ("launch_error", "shape (47, 32)"),
    "allocates_without_end": ("out_of_memory", "Unable to allocate"),
    "never_returns": ("timeout", "verifying took longer than 10 s"),
    "writes_later": ("wrong", "never written"),
    "spoils_later": ("wrong", ""),  # which check sees it first is a matter of time
    "raises_in_half": ("launch_error", "call 2 has had enough"),
    "kills_itself": ("crash", "SIGKILL"),
}
"""Function -> its outcome, and words of the reason."""


PROFILE = ("profile", "--providers", "user", "--shapes", SHAPE, "--dtypes", "f32", "--device",
           "cpu", "--experiment", "e", "--max-samples", "10", "--json")  # fmt: skip


def _kernels(file, names):
    return "--kernel", ",".join(f"{file}:{name}" for name in names)


@pytest.fixture(scope="module")
def records(run_in, tmp_path_factory):
    """The records of one sweep over all of them, by function, and its folder."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "bad.py").write_text(KERNELS)
    ended = run_in(folder, *PROFILE, *_kernels("bad.py", BAD), "--time-budget", "100ms",
                   "--set", "deadlines.verify=10")  # fmt: skip
    assert ended.status == 1, ended.stderr
    found = json.loads(ended.stdout)["records"]
    return {name: r for name in BAD for r in found if name in r["configuration"]}, folder


@pytest.mark.parametrize("name", BAD)
def test_each_is_an_outcome_with_its_reason_and_the_right_one_is_measured(records, name):
    record = records[0][name]
    outcome, words = BAD[name]
    assert record["outcome"] == outcome, record["reason"]
    assert words in (record["reason"] or "")
    assert bool(record["median_ns"]) == (outcome == "ok")


def test_evidence_is_kept_and_shown_and_its_command_repeats_the_failure(records, run_in):
    by_name, folder = records
    record = by_name["writes_later"]
    place = folder / "e" / record["evidence_path"]
    found = load(place)
    assert (found.check, found.operation.shape[:3]) == ("written", (48, 32, 40))
    assert found.output.shape == (48, 32)
    text = (place / "failure.txt").read_text()
    assert record["reason"] in text
    command = shlex.split(text.rpartition("again")[2])
    assert command[:3] == ["gemmetry", "verify", "run"]
    ended = run_in(folder, *command[1:], "--json")
    assert ended.status == 1, ended.stderr
    (again,) = json.loads(ended.stdout)["records"]
    assert (again["outcome"], again["reason"]) == ("wrong", record["reason"])
    shown = run_in(folder, "show", "e", "mutates_inputs").stdout
    assert "e/artifacts/failures/cpu/user/" in shown
    assert "Error map" in shown
    assert "gemmetry verify run " in shown


def test_a_device_that_disappears_keeps_the_rest_for_resume(cli):
    name = "matmul_16x16x16_f32t_f32t_f32t"
    patterns = ",".join(f"{name}_{item}" for item in ("fast", "device_lost_12", "default"))
    arguments = ("profile", "--providers", "null", "--dispatches", patterns, "--experiment", "e",
                 "--verification-level", "standard")  # fmt: skip
    lost = cli(*arguments, "--json")
    assert lost.status == 3
    assert "the simulated device null is gone" in lost.stderr
    assert "The same command" in lost.stderr
    before = {r["configuration"]: r["outcome"] for r in json.loads(lost.stdout)["records"]}
    assert "device_lost_12" not in before
    again = cli(*arguments, "--json")
    found = {r["configuration"]: r for r in json.loads(again.stdout)["records"]}
    assert set(found) == {"fast", "device_lost_12", "default"}
    assert found["default"]["outcome"] == found["fast"]["outcome"] == "ok"
    assert found["device_lost_12"]["outcome"] == "crash"
    assert "device lost twice" in found["device_lost_12"]["reason"]


HOSTILE = """
import ctypes, os, socket, stat, struct, subprocess, threading, time


calls = 0
left = None


def right(a, b):
    return a @ b


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


def writes_a_huge_frame(a, b):
    on_channels(struct.pack("<I", 0xFFFFFFFF))
    return a @ b


def writes_an_answer(a, b):
    on_channels(struct.pack("<I", 10) + bytes([0x91, 0xA8]) + b"Answered")
    return a @ b


def empties_the_checks(a, b):
    from gemmetry.verification import protocol

    protocol.CHECKS = ()
    return 0 * (a @ b)


def forks(a, b):
    os.fork()
    return a @ b


def forks_in_c(a, b):
    ctypes.CDLL(None).fork()
    return a @ b


def vforks(a, b):
    ctypes.CDLL(None).vfork()
    return a @ b


def forks_when_timed(a, b):
    global calls
    calls += 1
    if calls == 20:
        os.fork()
    return a @ b


def leaves_a_copy(a, b):
    if os.fork() == 0:
        time.sleep(1000)
    return a @ b


def leaves_a_process(a, b):
    global left
    if left is None:
        left = subprocess.Popen(["sleep", "1234"], start_new_session=True)
    return a @ b


def leaves_a_process_and_dies(a, b):
    # Popen returns when the process has its own session and its name.
    subprocess.Popen(["sleep", "4321"], start_new_session=True, stdout=subprocess.DEVNULL)
    open(os.path.join(os.environ["TMPDIR"], "cc1.s"), "w").close()
    os.abort()
"""

ENDS = {
    "right": ("ok", ""),
    "writes_noise": ("crash", "channel carried what no worker sends"),
    "writes_half_a_frame": ("crash", "ended with status 7"),
    "writes_a_huge_frame": ("crash", "a frame of 4294967295 bytes"),
    "writes_an_answer": ("crash", "reported the end before it had answered"),
    "empties_the_checks": ("crash", "a verdict without a result of the check written"),
    "forks": ("launch_error", "the kernel forks and"),
    "forks_in_c": ("launch_error", "the kernel forks and"),
    "forks_when_timed": ("launch_error", "the kernel forks and"),
    "vforks": ("launch_error crash", ""),  # both return on one stack
    "leaves_a_copy": ("launch_error", "the kernel forks and leaves a copy of the process"),
    "leaves_a_process": ("ok", ""),
    "leaves_a_process_and_dies": ("crash", "SIGABRT"),
}


@pytest.fixture(scope="module")
def hostile(run_in, tmp_path_factory):
    """The records of one sweep over kernels that turn on the run itself, by function."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(HOSTILE)
    ended = run_in(folder, *PROFILE, *_kernels("hostile.py", ENDS), "--time-budget", "50ms",
                   "--verification-level", "quick")  # fmt: skip
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)["records"]
    return {record["configuration"].removesuffix("_default"): record for record in found}, folder


@pytest.mark.parametrize("name", ENDS)
def test_a_hostile_kernel_costs_only_its_own_row(hostile, name):
    record = hostile[0][name]
    outcome, words = ENDS[name]
    assert record["outcome"] in outcome.split(), record["reason"]
    assert words in (record["reason"] or "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are found on Linux")
def test_processes_that_a_kernel_leaves_are_ended_and_reported(hostile):
    names, folder = hostile
    (mark,) = [m for m in names["leaves_a_process"]["marks"] if m.startswith("left running")]
    # One in each worker; workers that other kernels end are replaced.
    assert re.search(r"left .* running in .* own, now ended: sleep 1234 ", mark)
    assert "now ended: sleep 4321" in names["leaves_a_process_and_dies"]["reason"]
    running = [process.name for process in descendants(1)]
    assert not {"sleep 1234", "sleep 4321"} & set(running)
    assert not (folder / "e" / "temporary").exists()
