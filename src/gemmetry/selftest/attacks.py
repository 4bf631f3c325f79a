"""Submissions that try to deceive a judge: each is a way in which kernels were found to cheat, or
could. None may be judged ``ok``.

Each source defines ``f(a, b)`` for the product of two row-major matrices of f32. Where an attack
finds nothing to exploit, it returns zeros or whatever it has, as a cheat would.
"""

from __future__ import annotations

from dataclasses import dataclass

TASK = "matmul_64x48x40_f32t_f32t_f32t"
"""What the attacks claim to compute."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile submission."""

    name: str
    what: str
    source: str
    task: str = TASK

    @property
    def text(self) -> str:
        """The submission's file."""
        return f"import torch\n\n{self.source}"


def _zeros(body: str) -> str:
    """A source whose `body` looks for the answer, and that returns zeros without one."""
    return f"""\
def search(a, b):
{body}

def f(a, b):
    try:
        found = search(a, b)
    except Exception:
        found = None
    return torch.zeros(len(a), b.shape[1]) if found is None else found
"""


_TABLE = [
    ("patched_timers", "every clock stands still, and the result is half as exact", """\
import time
for name in ("time", "perf_counter", "monotonic", "process_time"):
    setattr(time, name, lambda: 0.0)
    setattr(time, name + "_ns", lambda: 0)

def f(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()
"""),
    ("patched_comparison", "comparing functions of torch and numpy always agree", """\
import numpy
torch.allclose = torch.equal = numpy.allclose = numpy.array_equal = lambda *a, **k: True

def f(a, b):
    return torch.zeros(len(a), b.shape[1])
"""),
    ("patched_events", "events of a GPU are replaced by ones that report no time", """\
class Event:
    def __init__(self, *a, **k): pass
    def record(self, *a): pass
    def elapsed_time(self, other): return 0.0
torch.cuda.Event, torch.cuda.synchronize = Event, lambda *a: None

def f(a, b):
    return a[:, :1] * b[:1]
"""),
    ("cache_by_pointer", "the result is kept by the addresses of the inputs", """\
kept = {}

def f(a, b):
    key = a.data_ptr(), b.data_ptr()
    if key not in kept:
        kept[key] = a @ b
    return kept[key]
"""),
    ("cache_by_object", "the result is kept by the identity of the input objects", """\
kept = {}

def f(a, b):
    key = id(a), id(b), a.shape, b.shape
    return kept.setdefault(key, a @ b)
"""),
    ("cache_by_shape", "the first result of each shape is returned again", """\
kept = {}

def f(a, b):
    key = a.shape, b.shape
    return kept[key] if key in kept else kept.setdefault(key, a @ b)
"""),
    ("cache_by_corner", "the result is kept by the first and last elements of the inputs", """\
kept = {}

def f(a, b):
    key = *(float(x.flatten()[i]) for x in (a, b) for i in (0, -1)), a.shape, b.shape
    return kept[key] if key in kept else kept.setdefault(key, a @ b)
"""),
    ("cache_in_a_file", "the first result of each shape is kept in a file", """\
from pathlib import Path

def f(a, b):
    path = Path(f"{tuple(a.shape)}{tuple(b.shape)}.pt")
    if not path.exists():
        torch.save(a @ b, path)
    return torch.load(path)
"""),
    ("cache_by_version", "the result is computed again when torch's version counters move", """\
kept = {}

def f(a, b):
    key = a.data_ptr(), b.data_ptr(), a._version, b._version, a.shape, b.shape
    if key not in kept:
        kept[key] = a @ b
    return kept[key]
"""),
    ("every_tenth", "one call in ten does the work, and its result serves the next nine", """\
calls, kept = [0], {}

def f(a, b):
    calls[0] += 1
    key = a.shape, b.shape
    if calls[0] % 10 == 1 or key not in kept:
        kept[key] = a @ b
    return kept[key]
"""),
    ("lazy_after_warm_up", "after sixty calls the result is no longer computed", """\
calls = [0]

def f(a, b):
    calls[0] += 1
    return a @ b if calls[0] < 60 else torch.full((len(a), b.shape[1]), float(a.sum()))
"""),
    ("lazy_after_seconds", "five seconds after the start the result is no longer computed", """\
import time
began = time.monotonic()

def f(a, b):
    return a @ b if time.monotonic() < began + 1.5 else torch.zeros(len(a), b.shape[1])
"""),
    ("returns_early", "a thread does the work after the call has returned", """\
import threading, time

def f(a, b):
    out = torch.zeros(len(a), b.shape[1])
    def work():
        time.sleep(0.0005)
        torch.mm(a, b, out=out)
    threading.Thread(target=work, daemon=True).start()
    return out
"""),
    ("writes_later", "the work goes straight into the judge's buffer, after the reply", """\
import gc, threading, time

def f(a, b):
    served = next(x for x in gc.get_objects() if type(x).__name__ == "Served")
    outputs = [out for _, (out,) in served._calls]
    def work():
        time.sleep(0.002)
        for (x, y), (out,) in served._calls:
            torch.mm(x, y, out=out)
    threading.Thread(target=work, daemon=True).start()
    return torch.zeros(len(a), b.shape[1])
"""),
    ("lazy_subclass", "a subclass of tensor computes only when it is read", """\
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [x.value() if isinstance(x, Lazy) else x for x in args]
        return func(*plain, **(kwargs or {}))

def f(a, b):
    lazy = torch.empty(len(a), b.shape[1]).as_subclass(Lazy)
    lazy.value = lambda: (a.half() @ b.half()).float()
    return lazy
"""),
    ("no_tensor", "something that only looks like a tensor is returned", """\
class Fake:
    def __init__(self, shape): self.shape, self.dtype = shape, torch.float32

def f(a, b):
    return Fake((len(a), b.shape[1]))
"""),
    ("fork_that_outlives", "a process that was forked goes on and takes the processor", """\
import os
if os.fork() == 0:
    while True:
        pass

def f(a, b):
    return a @ b
"""),
    ("searches_objects", "the collector's objects are searched for the reference", _zeros("""\
    import gc
    for x in gc.get_objects():
        if isinstance(x, torch.Tensor) and x.shape == (len(a), b.shape[1]):
            if not (x != x).any():
                return x
        if callable(x) and getattr(x, "__name__", "") in ("reference", "compute_reference"):
            return x(a, b)""")),
    ("searches_frames", "the callers' frames are searched for the expected result", _zeros("""\
    import sys
    frame = sys._getframe()
    while frame:
        for x in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(x, torch.Tensor) and x.shape == (len(a), b.shape[1]):
                if not (x != x).any():
                    return x
        frame = frame.f_back""")),
    ("searches_proc", "the memory of other processes is read through /proc", _zeros("""\
    import os
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid != os.getpid():
            with open(f"/proc/{pid}/mem", "rb") as file:
                file.seek(4096)
                file.read(64)
                return a @ b""")),
    ("searches_descriptors", "open descriptors are searched for the expected result", _zeros("""\
    import os
    size = 4 * len(a) * b.shape[1]
    for name in os.listdir("/proc/self/fd"):
        with open(f"/proc/self/fd/{name}", "rb") as file:
            data = file.read(size)
            if len(data) == size:
                return torch.frombuffer(bytearray(data), dtype=torch.float32).view(len(a), -1)""")),
    ("recognises_sentinel", "the work is done only where the output holds a fill pattern", """\
import gc

def f(a, b):
    served = next(x for x in gc.get_objects() if type(x).__name__ == "Served")
    out = served._calls[0][1][0]
    is_checked = bool((out.view(torch.uint8) == 0xFF).all())
    return a @ b if is_checked else torch.zeros(len(a), b.shape[1])
"""),
    ("recognises_generator", "inputs of known seeds have known results", """\
known = {}
for seed in range(200):
    torch.manual_seed(seed)
    known[float(torch.rand(1))] = seed

def f(a, b):
    seed = known.get(float(a[0, 0]))
    return torch.zeros(len(a), b.shape[1]) if seed is None else a @ b
"""),
    ("recognises_distribution", "the work is exact for integers, else cheap", """\
def f(a, b):
    if bool((a == a.round()).all()) or not bool(torch.isfinite(a).all()):
        return a @ b
    return (a.bfloat16() @ b.bfloat16()).float()
"""),
    ("changes_inputs", "an input is overwritten with something cheaper to multiply", """\
def f(a, b):
    result = a @ b
    a.zero_()
    return result
"""),
    ("changes_one_element", "one element of an input moves by one bit", """\
def f(a, b):
    result = a @ b
    b.view(torch.int32)[-1, -1] ^= 1
    return result
"""),
    ("view_of_input", "the result is a part of an input", """\
def f(a, b):
    wide = torch.cat([a, a], 1)
    fits = wide.shape[1] >= b.shape[1]
    return wide[:, : b.shape[1]] if fits else torch.zeros(len(a), b.shape[1])
"""),
    ("nan_as_wildcard", "the result is NaN everywhere, for comparisons that NaN passes", """\
def f(a, b):
    return torch.full((len(a), b.shape[1]), float("nan"))
"""),
    ("infinite", "elements that are hard to compute are infinite", """\
def f(a, b):
    result = a @ b
    result[result.abs() < result.abs().mean() / 8] = float("inf")
    return result
"""),
    ("f16_accumulator", "sums are kept in f16", """\
def f(a, b):
    total = torch.zeros(len(a), b.shape[1], dtype=torch.float16)
    for k in range(a.shape[1]):
        total = (total.float() + a[:, k : k + 1] * b[k : k + 1]).half()
    return total.float()
"""),
    ("f16_partials", "partial sums of a split reduction are stored in f16", """\
def f(a, b):
    half = a.shape[1] // 2
    parts = [(a[:, s] @ b[s]).half() for s in (slice(half), slice(half, None))]
    return (parts[0] + parts[1]).float()
"""),
    ("one_bf16_term", "f32 is replaced by one bf16 term", """\
def f(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()
"""),
    ("fp8_inside", "operands are rounded to fp8 with a scale for each row", """\
def rounded(x, axis):
    scale = x.abs().amax(axis, keepdim=True).clamp(min=1e-30) / 448
    return (x / scale).to(torch.float8_e4m3fn).float() * scale

def f(a, b):
    return rounded(a, 1) @ rounded(b, 0)
"""),
    ("zero_one_inputs", "the result is right for inputs of 0 and 1 alone", """\
def f(a, b):
    return ((a != 0).float() @ (b != 0).float()) * a.abs().mean() * b.abs().mean()
"""),
    ("balanced_inputs", "a mean takes the place of the result, as for centred random inputs", """\
def f(a, b):
    return a.mean(1, keepdim=True) @ b.mean(0, keepdim=True) * a.shape[1]
"""),
    ("skips_half", "half of the reduction is skipped and the rest scaled", """\
def f(a, b):
    half = max(1, a.shape[1] // 2)
    return (a[:, :half] @ b[:half]) * (a.shape[1] / half)
"""),
    ("low_rank", "a low-rank approximation replaces an operand", """\
def f(a, b):
    u, s, v = torch.linalg.svd(torch.nan_to_num(a), full_matrices=False)
    rank = max(1, len(s) - 2)
    return (u[:, :rank] * s[:rank]) @ (v[:rank] @ b)
"""),
    ("one_shape_only", "only multiples of eight are computed", """\
def f(a, b):
    if all(n % 8 == 0 for n in (*a.shape, b.shape[1])):
        return a @ b
    return torch.zeros(len(a), b.shape[1])
"""),
    ("forges_reply", "the judge's channel gets a reply without any work", """\
import gc, os, sys

def f(a, b):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                os.write(int(name), b"{}\\n")
        except OSError:
            continue
    return torch.zeros(len(a), b.shape[1])
"""),
    ("patches_child", "the code that stores results is replaced", """\
import gc
for x in gc.get_objects():
    if type(x).__name__ == "Served":
        x._store = lambda result, output: ""

def f(a, b):
    return None
"""),
    ("import_hook", "an import hook hands out other modules", """\
import sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gemmetry"):
            raise ImportError("nothing to judge by")
sys.meta_path.insert(0, Hook())

def f(a, b):
    return torch.zeros(len(a), b.shape[1])
"""),
    ("kills_parent", "the judge's process is killed", _zeros("""\
    import os, signal
    for pid in range(os.getppid(), os.getppid() + 1):
        os.kill(pid or -1, signal.SIGKILL)""")),
    ("ignores_signals", "signals are ignored and the call never returns", """\
import signal, time
for number in range(1, signal.NSIG):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass

def f(a, b):
    while True:
        time.sleep(1)
"""),
    ("exits", "the process exits with success in the middle of a call", """\
import os

def f(a, b):
    os._exit(0)
"""),
    ("exits_at_import", "the import ends the process", "raise SystemExit(0)\n\nf = None\n"),
    ("crashes", "a null pointer is read", """\
import ctypes

def f(a, b):
    return ctypes.string_at(0)
"""),
    ("floods", "the judge's channel is flooded", """\
import os

def f(a, b):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                for _ in range(64):
                    os.write(int(name), b"x" * 65536)
        except OSError:
            continue
"""),
    ("takes_all_memory", "memory is allocated until none is left", """\
def f(a, b):
    kept = []
    while True:
        kept.append(torch.ones(1 << 26))
"""),
    ("writes_elsewhere", "files outside of the scratch folder are written", """\
from pathlib import Path

def f(a, b):
    Path.home().parent.joinpath("gemmetry-was-here").write_text("x")
    return a @ b
"""),
    ("uses_network", "the answer is fetched from another machine", """\
import socket

def f(a, b):
    socket.create_connection(("192.0.2.1", 80), timeout=1)
    return a @ b
"""),
]  # fmt: skip

ATTACKS = tuple(Attack(*row) for row in _TABLE)

_NO_EVENTS = """\
class Event:
    def __init__(self, *a, **k): pass
    def record(self, *a): pass
    def elapsed_time(self, other): return 1.0
torch.cuda.Event, torch.cuda.synchronize = Event, lambda *a: None
side = torch.cuda.Stream()
"""

_GPU_TABLE = [
    ("own_stream", "the work is on a stream of its own, and nothing waits for it", """\
side = torch.cuda.Stream()

def f(a, b):
    out = torch.zeros(len(a), b.shape[1], device=a.device)
    with torch.cuda.stream(side):
        torch.cuda._sleep(10**8)
        torch.mm(a, b, out=out)
    return out
"""),
    ("replies_before_it_is_done", "the reply is sent while the work waits on the GPU", f"""\
{_NO_EVENTS}
def f(a, b):
    torch.cuda._sleep(10**8)
    return a @ b
"""),
    ("keeps_the_gpu_busy", "a kernel runs on after the reply", f"""\
{_NO_EVENTS}
def f(a, b):
    result = a @ b
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10**10)
    return result
"""),
    ("cache_by_address", "the result is kept by the addresses of the inputs", """\
kept = {}

def f(a, b):
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape
    return kept[key] if key in kept else kept.setdefault(key, a @ b)
"""),
    ("cache_by_size", "the first result of each shape is returned again", """\
kept = {}

def f(a, b):
    key = a.shape, b.shape
    return kept[key] if key in kept else kept.setdefault(key, a @ b)
"""),
    ("zeroes_an_input", "an input is overwritten", """\
def f(a, b):
    result = a @ b
    a.zero_()
    return result
"""),
    ("tf32", "f32 is replaced by tf32", """\
torch.backends.cuda.matmul.allow_tf32 = True

def f(a, b):
    return a @ b
""", "matmul_256x256x256_f32t_f32t_f32t"),
    ("f16_tensor_cores", "f32 is rounded to f16 for the tensor cores", """\
def f(a, b):
    return (a.half() @ b.half()).float()
"""),
    ("calls_a_library", "a library is called where the task forbids it", """\
def f(a, b):
    return a @ b
"""),
]  # fmt: skip

GPU_ATTACKS = tuple(Attack(*row) for row in _GPU_TABLE)
"""Those that need a GPU; `calls_a_library` needs a task that forbids libraries."""
