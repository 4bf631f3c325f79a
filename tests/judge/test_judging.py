"""Submissions in every form, right ones and attacks, judged in confined processes."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from gemmetry.domain.errors import OutOfMemoryError, RequestError
from gemmetry.hardware.cuda_plans import cuda_tools
from gemmetry.hardware.roofline import SpeedLimit
from gemmetry.judge import sandbox
from gemmetry.judge.census import compiled, reported
from gemmetry.judge.judging import Ruling, judge
from gemmetry.judge.memory import Arena, DeviceArena
from gemmetry.judge.remote import Remote
from gemmetry.judge.sandbox import confine
from gemmetry.judge.tasks import Submission, Task, read_submission, read_task
from gemmetry.selftest.submissions import ATTACKS, RIGHT, TASK

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="submissions are confined on Linux")

MEMORY = 16 * 2**30
CUBINS = Path(__file__).parents[2] / "examples" / "cubins"


ATTACK = {one.name: one.text for one in ATTACKS}
PRODUCT = "def f(a, b):\n    return a @ b\n"


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch) -> None:
    """Small differences need more."""
    monkeypatch.setattr("gemmetry.judge.judging.ROUNDS", 5)


def _judged(task, submission, **options):
    given = {"limit_s": 20, "memory_bytes": MEMORY, "seed": 3, "time_it": False}
    return judge(task, submission, **given | options)


def _mine(source, task=TASK, **options):
    submission = Submission(name="mine", files={"m.py": source}, main="m.py", entry="f")
    task = task if isinstance(task, Task) else read_task(task)
    return _judged(task, submission, **{"level": "quick"} | options)


def _is_ok(source, task=TASK, **options):
    found = _mine(source, task, **options)
    assert found.ruling is Ruling.OK, str(found)
    return found


@pytest.mark.parametrize("name", ATTACK)
def test_no_attack_is_ok(name) -> None:
    # No process of this short a judgement need live as long as lazy_after_seconds waits.
    text = ATTACK[name].replace("began + 1.5", "began + 0.1")
    found = _mine(text, level="standard", time_it=True, limit_s=3, seed=None)
    assert found.ruling is not Ruling.OK
    assert found.findings and all(one.what for one in found.findings)
    assert found.speed is None
    assert len(json.dumps(found.result(is_brief=True).document()).encode()) <= 4096


@pytest.mark.parametrize("name", ["cache_by_pointer", "cache_by_object", "cache_by_version"])
def test_a_result_kept_by_identity_is_found_without_timing(name) -> None:
    assert _mine(ATTACK[name]).ruling is Ruling.WRONG


@pytest.mark.parametrize("kind", sorted({one.kind for one in RIGHT}))
def test_right_submissions_are_ok(kind, tmp_path) -> None:
    """One of every kind, of all formats; ``benchmarks/judge_right.py`` judges all."""
    assert len({one.name for one in RIGHT}) == len(RIGHT) >= 80
    alike = [one for one in RIGHT if one.kind == kind]
    name, path = alike[sum(map(ord, kind)) % len(alike)].write(tmp_path)
    task = read_task(name)
    found = _judged(task, read_submission(path, task))
    assert found.ruling is Ruling.OK, str(found)
    assert task.operation is None or found.accuracy
    assert len(found.checks) > (20 if task.operation else 4)


def test_speed_is_compared_with_torch_by_the_judge_s_clock() -> None:
    source = "def f(a, b):\n    for _ in range(30):\n        a @ {0}\n    return a @ {0}\n"
    given = {"task": "matmul_128x128x128_f32t_f32n_f32t", "level": "standard", "time_it": True}
    assert _mine(source.format("b"), **given).ruling is Ruling.WRONG  # b is transposed
    found = _is_ok(source.format("b.t()"), **given)
    assert found.speed.verdict in ("slower", "undecided") and found.speed.speedup < 0.8
    assert "timed launches" in found.checks


MODEL = """
import torch


class {name}(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, 24)

    def forward(self, x):
        y = self.linear(x)
        {body}
"""
MAKES = """
def get_inputs():
    return [torch.randn(16, 40)]


def get_init_inputs():
    return [40]
"""
KERNELBENCH = MODEL.format(name="Model", body="return torch.softmax(y, -1)") + MAKES
OWN_SOFTMAX = "e = torch.exp(y{}); return e / e.sum(-1, keepdim=True)"


SHIFT = " - y.amax(-1, keepdim=True)"


def _kernelbench(folder: Path, shift: str = SHIFT, problem: str = KERNELBENCH):
    (folder / "problem.py").write_text(problem)
    new = MODEL.format(name="ModelNew", body=OWN_SOFTMAX.format(shift))
    (folder / "new.py").write_text(new)
    return read_task(f"{folder}/problem.py"), f"{folder}/new.py"


OF_NAME = {one.name: one for one in RIGHT}


def _gpu_mode(folder: Path, body: str):
    one = OF_NAME["add_gpumode"]
    task, path = one.write(folder)
    with (folder / "task.yml").open("a") as file:
        file.write("benchmarks:\n  - {n: 64, seed: 2}\n")
    Path(path).write_text(one.files["submission.py"].replace("torch.stack([x, y]).sum(0)", body))
    return read_task(task), path


def _flashinfer(folder: Path, epsilon: str, path: str = "inner/norm.py"):
    definition, solution = map(json.loads, OF_NAME["rms_norm_flashinfer"].files.values())
    definition["axes"]["n"] = {"type": "var"}
    (main,) = solution["sources"]
    norm = {"path": path, "content": main["content"].replace("1e-6", epsilon)}
    solution["sources"] = [main | {"content": "from inner.norm import run\n"}, norm]
    workload = {"workload": {"axes": {"n": 7}}}
    (folder / "definition.json").write_text(json.dumps(definition))
    (folder / "solution.json").write_text(json.dumps(solution))
    (folder / "workloads.jsonl").write_text(json.dumps(workload))
    task = read_task(f"{folder}/definition.json", folder / "workloads.jsonl")
    assert task.make(1)[0].shape == (7, 32)
    return task, f"{folder}/solution.json"


@pytest.mark.parametrize(
    ("write", "body", "ruling"),
    [(_kernelbench, SHIFT, Ruling.OK), (_kernelbench, "", Ruling.WRONG),
     (_gpu_mode, "x + y", Ruling.OK),
     (_gpu_mode, "(x.half() + y.half()).float()", Ruling.WRONG),
     (_flashinfer, "1e-6", Ruling.OK), (_flashinfer, "1e-2", Ruling.WRONG)],
)  # fmt: skip
def test_tasks_of_other_benchmarks(tmp_path, write, body, ruling) -> None:
    task, path = write(tmp_path, body)
    found = _judged(task, read_submission(path, task))
    assert found.ruling is ruling, str(found)
    assert "empirical" in found.basis


def test_what_a_module_imports_may_be_named_and_is_not_offered(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"from numpy import matmul\n\n{PRODUCT}")
    task = read_task(TASK)
    assert read_submission(f"{path}:matmul", task).entry == "matmul"
    with pytest.raises(RequestError) as caught:
        read_submission(f"{path}:other", task)
    assert "defines f;" in caught.value.hint


def test_a_solution_stays_in_its_folder(tmp_path) -> None:
    task, path = _flashinfer(tmp_path, "1e-6", "../outside.py")
    with pytest.raises(RequestError):
        read_submission(path, task)


def _hostile(path: Path, content: object) -> Path:
    """A file at `path`: text, bytes, a size of zeros, a link, a pipe, a folder, or nothing."""
    match content:
        case str() | bytes():
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        case int():
            path.touch()
            os.truncate(path, content)
        case Path():
            path.symlink_to(content)
        case Callable():
            content(path)
    return path


HOSTILE = [None, b"\xff\xfe", 2**30, Path("/dev/zero"), os.mkfifo, Path.mkdir]


@pytest.mark.parametrize(
    ("name", "content"),
    [*product(("x.py", "x.json", "x.cu"), HOSTILE),
     ("syntax.py", "def f(:"), ("other.py", "x = 1\n"), ("text.txt", "f"), ("list.json", "[]"),
     ("deep.json", "[" * 100_000), ("kernel.cu", "void f() {}"),
     ("deep.py", "f = " + "(" * 100_000)],
)  # fmt: skip
def test_files_that_are_no_submission(tmp_path, name, content) -> None:
    path = _hostile(tmp_path / name, content)
    with pytest.raises(RequestError, match=name):
        read_submission(str(path), replace(read_task(TASK), entry="f"))


DEFINITION = {
    "name": "double", "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x * 2\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"),
    [*product(("x.py", "x.json", "x.yml"), HOSTILE[:-1]),
     ("problem.py", "raise ValueError\n"), ("exits.py", "raise SystemExit(0)\n"),
     ("empty.py", ""), ("unreferenced.py", "def get_inputs():\n    return []\n"),
     ("initial.py", "Model = get_inputs = list\ndef get_init_inputs(): raise KeyError\n"),
     ("task.yml", "tests: []\n"), ("task.yml", "a: [b\n"), ("task.yml", "tests: [{m: 3}]\n"),
     ("definition.json", "{}"), ("definition.json", "nothing"),
     ("definition.json", json.dumps({**DEFINITION, "reference": None})),
     ("definition.json", json.dumps({**DEFINITION, "reference": "x = 1"})),
     ("large.json", json.dumps({**DEFINITION, "axes": {"n": {"type": "const", "value": 10**12}}}))],
)  # fmt: skip
def test_files_that_are_no_task(tmp_path, name, content) -> None:
    path = _hostile(tmp_path / name, content)
    with pytest.raises(RequestError, match=path.stem):
        read_task(str(path))


@pytest.mark.parametrize(
    ("old", "new"),
    [("torch.softmax(", "torch.nothing("),  # fails
     ("torch.randn(16, 40)", "torch.randn(16, 41)"),  # its shapes do not fit
     ("[torch.randn(16, 40)]", "[]"), ("[torch.randn(16, 40)]", "1 / 0"),
     # In float64 it is another function, or a more exact one than in its own format.
     ("torch.softmax(", "(lambda y, d: y if y.dtype == torch.float64 else y + 1)("),
     ("torch.softmax(y, -1)", "y if x.dtype == torch.float64 else y.half().float()"),
     ("torch.softmax(", "(lambda y, d: torch.softmax(y, d).float())("),
     ("torch.softmax(y, -1)", "None")],
)  # fmt: skip
def test_a_reference_that_is_wrong_is_the_task_s_fault(tmp_path, old, new) -> None:
    task, path = _kernelbench(tmp_path, problem=KERNELBENCH.replace(old, new))
    with pytest.raises(RequestError):
        _judged(task, read_submission(path, task))


@pytest.mark.parametrize(
    ("source", "ruling"),
    [("import nothing_of_this_name\n\n\ndef f(a, b): ...\n", Ruling.REFUSED),
     (f"import time\n\n\n{PRODUCT}\n\ntime.sleep(99)\n", Ruling.REFUSED),
     ("import time\n\n\ndef f(a, b): time.sleep(99)\n", Ruling.REFUSED),
     ("def f(a): return a\n", Ruling.REFUSED),
     ("def f(a, b): return a @ b.t()\n", Ruling.REFUSED),  # shapes do not fit
     ("def f(a, b): return (a @ b)[:-1]\n", Ruling.WRONG),
     ("def f(a, b): return (a @ b).double()\n", Ruling.WRONG),
     ("def f(a, b): return a @ b, a\n", Ruling.WRONG),
     ("f = 3\n", Ruling.REFUSED),
     (".cu", Ruling.REFUSED)],  # does not compile
)  # fmt: skip
def test_submissions_that_do_not_work(tmp_path, monkeypatch, source, ruling) -> None:
    monkeypatch.setattr("gemmetry.judge.remote.START_S", 5.0 if "sleep" in source else 60.0)
    path = _hostile(tmp_path / ("mine.cu" if source == ".cu" else "mine.py"), source)
    task = read_task(TASK)
    found = _judged(task, read_submission(f"{path}:f", task), limit_s=3)
    assert found.ruling is ruling, str(found)


def _forked(function: Callable[[], object]) -> Any:
    """What `function` returns in a forked process, which may be confined."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - another process
        try:
            os.write(sending, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(sending)
    os.waitpid(pid, 0)
    with os.fdopen(receiving) as file:
        return json.load(file)


def _attempts(folder: Path, is_gpu: bool = False) -> dict[str, Any]:
    """What a confined process can do, and what the kernel did not grant."""
    judge = os.getppid()
    found: dict[str, Any] = {"missing": confine(folder, is_gpu=is_gpu)}
    thread = f"/proc/self/task/{threading.get_native_id()}"
    attempts: dict[str, Callable[[], object]] = {
        "scratch": lambda: (folder / "x").write_text("1"),
        "elsewhere": lambda: (folder.parent / "evil").write_text("1"),
        "shared": lambda: Path("/dev/shm/evil").write_text("1"),
        "null": lambda: Path("/dev/null").write_text("1"),
        "own": lambda: Path(thread, "comm").write_text("named"),
        "system": lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_RDWR)),
        "network": lambda: socket.create_connection(("127.0.0.1", 1), 0.2),
        "files": lambda: socket.socketpair()[0].close(),
        "another's signal": lambda: os.kill(judge, 0),
        "all signals": lambda: os.kill(-1, 0),
        "owned signal": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, judge),
        "another's limit": lambda: resource.prlimit(judge, resource.RLIMIT_CPU),
        "own limit": lambda: resource.prlimit(0, resource.RLIMIT_CPU),
        "own signal": lambda: os.kill(os.getpid(), 0),
        "raise": lambda: signal.raise_signal(signal.SIGCHLD),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "done"
        except OSError as error:
            found[name] = type(error).__name__
    found["processes"] = sum(p.name.isdigit() for p in Path("/proc").iterdir())
    return found


@pytest.mark.parametrize("is_gpu", [False, True])
def test_what_a_confined_process_cannot_do(tmp_path, is_gpu) -> None:
    found = _forked(lambda: _attempts(tmp_path, is_gpu))
    allowed = ("scratch", "null", "files", "own signal", "raise")
    assert {found[name] for name in allowed} == {"done"}
    if not any("Landlock" in one for one in found["missing"]):
        assert found["elsewhere"] == found["shared"] == found["system"] == "PermissionError"
        assert found["own"] == ("done" if is_gpu else "PermissionError")
    if not found["missing"]:
        assert found["network"] != "done" and found["processes"] == 1


LANDLOCK = "no Landlock, so files can be written wherever the user may"


def test_without_namespaces_and_landlock_the_judge_is_safe(tmp_path, monkeypatch) -> None:
    """A filter denies both, as kernels and containers do that grant neither."""
    machine, numbers = sandbox._MACHINES.get(os.uname().machine, (0, {}))
    assert all(len({*known.values()}) == len(known) for _, known in sandbox._MACHINES.values())
    if not numbers:
        pytest.skip("no numbers of system calls are known for this machine")
    unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]

    def denied(then: Callable[[], object]) -> object:
        libc = ctypes.CDLL(None)
        libc.prctl(sandbox._PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with monkeypatch.context() as patched:
            calls = {"unshare": unshare, "landlock_create_ruleset": sandbox._LANDLOCK_CREATE}
            patched.setitem(sandbox._MACHINES, os.uname().machine, (machine, calls))
            assert not sandbox._restrict_calls(libc)
        return then()

    found = _forked(lambda: denied(lambda: _attempts(tmp_path)))
    assert [one.partition(" (")[0] for one in found["missing"]] == ["no namespaces", LANDLOCK]
    refused = ("network", "another's signal", "all signals", "owned signal", "another's limit")
    allowed = ("scratch", "files", "own limit", "own signal", "raise")
    for names, end in ((refused, "PermissionError"), (allowed, "done")):
        assert {name: found[name] for name in names} == dict.fromkeys(names, end)
    ruling = _forked(lambda: denied(lambda: _mine(ATTACK["kills_parent"], level="standard").ruling))
    assert ruling == Ruling.WRONG


class Pretended(DeviceArena):
    """The memory of a GPU, played by a memory file: what is written to the host has to be pushed,
    and what the submission wrote to be pulled."""

    idle: ClassVar[list[bool]] = []

    def _created(self, index):
        descriptor = os.memfd_create("pretended")
        os.ftruncate(descriptor, self.size_bytes)
        mapped = mmap.mmap(descriptor, self.size_bytes)
        return descriptor, self._torch.frombuffer(mapped, dtype=self._torch.uint8)

    def setup(self):
        return {**super().setup(), "transport": "host"}

    def _wait(self):
        """Nothing runs behind the caller's back."""

    def is_idle(self):
        return self.idle.pop() if self.idle else True

    def close(self):
        os.close(self.descriptor)


CHANGES_A = "def f(a, b):\n    c = a @ b\n    a.zero_()\n    return c\n"


@pytest.fixture
def use(monkeypatch) -> Callable[..., None]:
    """Take this arena."""
    return lambda made: monkeypatch.setattr("gemmetry.judge.judging.open_arena", made)


@pytest.mark.parametrize(("transport", "memory"), [("upload", "upload"), ("pretended", "device")])
def test_inputs_travel_in_other_ways(use, transport, memory) -> None:
    if transport == "pretended":
        use(lambda *a: Pretended("cpu"))
    found = _is_ok(PRODUCT, transport=transport, level="standard", time_it=True)
    assert found.memory == memory
    assert found.speed is not None
    assert {"red_zones", "unordered_work", "timed launches", "clocks agree"} <= set(found.checks)
    assert _mine(CHANGES_A, transport=transport).ruling is Ruling.CHEATED
    assert _mine(ATTACK["writes_later"], transport=transport).ruling is not Ruling.OK


@pytest.mark.parametrize(
    ("idle", "rulings"), [([True, False], {"cheated"}), ([False, False], {"refused"}), ([], set())]
)
def test_a_gpu_that_is_busy_between_batches(monkeypatch, use, idle, rulings) -> None:
    """Idle once the submission has been ended: its kernels ran; still busy: another program's."""
    arena = Pretended("cpu")
    use(lambda *a: arena)
    monkeypatch.setattr(Pretended, "idle", list(idle))
    assert {one.ruling for one in _mine(PRODUCT).findings} == rulings


def test_memory_that_the_process_cannot_open_is_uploaded(use) -> None:
    class Unopened(Pretended):
        def setup(self):
            return {**super().setup(), "transport": "device", "device": "cpu"}

    use(lambda _, wanted: Arena("cpu", transport=wanted) if wanted else Unopened("cpu"))
    assert _is_ok(PRODUCT).memory.startswith("upload (")


@pytest.mark.parametrize("kind", [Arena, Pretended])
def test_batches_are_as_long_as_the_shared_memory_allows(monkeypatch, use, kind) -> None:
    monkeypatch.setattr("gemmetry.judge.memory.ARENA_BYTES", 2**23)
    monkeypatch.setattr("gemmetry.judge.judging.MIN_BATCH_NS", 1e12)
    arena, lengths, prepare = kind("cpu"), [], Remote.prepare
    use(lambda *a: arena)
    monkeypatch.setattr(
        Remote, "prepare", lambda self, calls: (lengths.append(len(calls)), prepare(self, calls))
    )
    found = _is_ok(PRODUCT, "matmul_128x128x128_f32t_f32t_f32t", time_it=True)
    assert found.speed is not None and max(lengths) == 2**22 // (3 * (2**16 + 768)) == 21
    with pytest.raises(OutOfMemoryError, match="cpu"):
        arena._allocate((3, 2**20), np.dtype(np.float32))


SOMETIMES = """
calls = 0


def f(a, b):
    global calls
    calls += 1
    c = a @ b
    if calls > 300 and calls % 4 == 0:
        c[7, 11] += c.abs().mean()
    return c
"""


@pytest.mark.parametrize(
    ("source", "ruling"), [(PRODUCT, "ok"), (SOMETIMES, "cheated")], ids=["right", "sometimes"]
)
def test_each_batch_of_large_inputs_is_looked_at(monkeypatch, source, ruling) -> None:
    monkeypatch.setattr("gemmetry.judge.judging.LARGE_BYTES", 2**20)
    monkeypatch.setattr("gemmetry.judge.judging.ROUNDS", 12)
    found = _mine(source, "matmul_64x48x4096_f32t_f32t_f32t", time_it=True)
    assert found.ruling == ruling, str(found)
    assert {one.check for one in found.findings} <= {"timed launches"}


def _cheats_by(check, *arguments, **options):
    found = _mine(*arguments, time_it=True, **options)
    assert found.ruling is Ruling.CHEATED
    assert [one.check for one in found.findings] == [check]


def test_a_clock_that_stands_still_is_a_finding() -> None:
    source = f"import time\ntime.perf_counter_ns = lambda: 0\n\n{PRODUCT}"
    _cheats_by("clocks agree", source, "matmul_512x512x512_f32t_f32t_f32t")


def test_faster_than_the_arithmetic_allows_is_a_finding(monkeypatch) -> None:
    limit = SpeedLimit(1e3, "a limit for this test")
    monkeypatch.setattr("gemmetry.judge.judging.speed_limit", lambda *a: limit)
    monkeypatch.setattr("gemmetry.judge.judging.ROUNDS", 12)
    _cheats_by("no faster than possible", PRODUCT)


@pytest.mark.parametrize(
    ("body", "account"),
    [("return a @ b", "its own"), ("return (a[:, :, None] * b).sum(1)", ""),
     ("import numpy; x = numpy.ones((300, 300)); x @ x\n"
      "    return (a[:, :, None] * b).sum(1)", "the judge's")],
)  # fmt: skip
def test_libraries_that_a_task_forbids(body, account) -> None:
    task = replace(read_task(TASK), allows_libraries=False)
    found = _mine(f"def f(a, b):\n    {body}\n", task)
    assert found.ruling is (Ruling.CHEATED if account else Ruling.OK), str(found)
    assert {one.account for one in found.ran if one.library} == ({account} if account else set())


def test_what_a_process_reports_to_have_run_is_read_with_care() -> None:
    nvjet = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
    rows = [["kernel", nvjet, 3], ["operator", "aten::mm", 1], ["operator", "aten::add", 1],
            ["kernel", 5, 1], None, ["other", "x", 1], ["kernel", "mine", 2]]  # fmt: skip
    found = reported(rows)
    assert [(one.name, one.library, one.count) for one in found] == [
        (nvjet, "nvjet", 3), ("aten::mm", "torch's", 1), ("mine", "", 2),
    ]  # fmt: skip
    assert reported({"kernel": 1}) == reported(None) == []


def test_machine_code_in_the_submission_s_folder(tmp_path) -> None:
    for name in ("nvcc", "cute"):
        shutil.copy(CUBINS / f"{name}_gemm.cubin", tmp_path)
    (tmp_path / "damaged.cubin").write_bytes(b"\x7fELF")
    os.mkfifo(tmp_path / "pipe.cubin")
    found = {one.name: one for one in compiled(tmp_path)}
    assert "gemm" in found and len(found) == 2
    assert all(one.local_bytes is not None for one in found.values())
    if any(cuda_tools("nvdisasm")):
        assert found["gemm"].accumulator == "F32" and "HGMMA" in found["gemm"].instructions
