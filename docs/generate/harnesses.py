"""Other projects' evaluations, run with a submission on a CPU.

Nothing of theirs is here: each needs a checkout. ``cuda_on_cpu/sitecustomize.py`` takes the place
of what they need of CUDA.

Each has a task of one matrix multiply in its own form, and the settings that its project runs it
with. A program prints ``accepted`` or ``refused`` last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SHAPE = (64, 48, 40)
LIMIT_S = 150
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
          'prlimit --as=17179869184 "$@"; exit $?', "sh")  # fmt: skip
"""In a process namespace, with which all that an attack starts ends; at most 16 GiB of memory."""

Files = dict[str, str]


@dataclass(frozen=True)
class Harness:
    """An evaluation: what it is called, and the files to run a submission by it."""

    name: str
    column: str
    files: Callable[[str, Path], Files]
    """Source of ``f(a, b)``, the checkout -> relative path -> text; ``run.py`` is run."""
    paths: tuple[str, ...] = ()
    """Folders of the checkout that Python searches."""

    def says(self, source: str, checkout: Path) -> str:
        """accepted, refused, does not survive (no verdict), or does not end."""
        found = [str(checkout / path) for path in self.paths]
        if checkout.name:
            found.append(str(Path(__file__).parent / "cuda_on_cpu"))
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.files(source, checkout).items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            (Path(folder) / "home" / "user").mkdir(parents=True)
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join([*found, os.environ.get("PYTHONPATH", "")]),
                "HOME": f"{folder}/home/user", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = [*_ALONE, sys.executable, "run.py"]
            ending = "does not survive"
            with Path(folder, "out").open("w+") as out:
                try:
                    subprocess.run(
                        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                        stderr=subprocess.DEVNULL, timeout=LIMIT_S, env=environment, check=False,
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    ending = "does not end"
                out.seek(0)
                lines = out.read().split("\n")
        words = [line for line in lines if line in ("accepted", "refused")]
        return words[-1] if words else ending


def _one_process(source: str, _: Path) -> Files:
    m, n, k = SHAPE
    return {
        "attack.py": source,
        "run.py": f"""\
import time
import torch
from attack import f

torch.manual_seed(0)
right = True
for _ in range(3):
    a, b = torch.rand({m}, {k}), torch.rand({k}, {n})
    right &= bool(torch.allclose(f(a, b), a @ b, rtol=1e-2, atol=1e-2))
began = time.perf_counter()
for _ in range(100):
    f(a, b)
ours = time.perf_counter() - began
print("\\naccepted" if right else "\\nrefused")
""",
    }


def _kernelbench(source: str, _: Path) -> Files:
    m, n, k = SHAPE
    return {
        "problem.py": f"""\
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A, B)

def get_inputs():
    return [torch.rand({m}, {k}), torch.rand({k}, {n})]

def get_init_inputs():
    return []
""",
        "submission.py": f"""\
{source}

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return f(A, B)
""",
        "run.py": """\
from pathlib import Path
import torch
from kernelbench import eval, timing

timing.clear_l2_cache = lambda *_, **__: None
found = eval.eval_kernel_against_ref(
    Path("problem.py").read_text(), Path("submission.py").read_text(), measure_performance=True,
    num_correct_trials=5, num_perf_trials=100, timing_method="cuda_event",
    device=torch.device("cuda:0"), backend="cuda", precision=torch.float32,
)
print("\\naccepted" if found.compiled and found.correctness and found.runtime > 0 else "\\nrefused")
""",
    }


def _gpumode(source: str, checkout: Path) -> Files:
    m, n, k = SHAPE
    problems = checkout / "problems"
    shapes = [SHAPE, (32, 32, 32), (128, 64, 96), (16, 128, 32), (256, 32, 64)]
    return {
        "eval.py": (problems / "pmpp_v2/eval.py").read_text(),
        "utils.py": (problems / "pmpp_v2/utils.py").read_text()
        + "\n\ndef clear_l2_cache():\n    pass\n",
        "reference.py": """\
import torch
from utils import make_match_reference

def generate_input(m, n, k, seed):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.empty(m, k, device="cuda", dtype=torch.float32)
    a.uniform_(0, 1, generator=gen)
    b = torch.empty(k, n, device="cuda", dtype=torch.float32)
    b.uniform_(0, 1, generator=gen)
    return a, b

def ref_kernel(data):
    a, b = data
    return a @ b

check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
""",
        "submission.py": f"{source}\n\ndef custom_kernel(data):\n    return f(*data)\n",
        "tests.txt": "\n".join(
            f"m: {m}; n: {n}; k: {k}; seed: {100 + place}" for place, (m, n, k) in enumerate(shapes)
        ),
        "benchmarks.txt": f"m: {m}; n: {n}; k: {k}; seed: 4321",
        "run.py": """\
import os, secrets, subprocess, sys

def passes(mode, cases):
    reading, writing = os.pipe()
    seed = str(secrets.randbits(31))
    process = subprocess.Popen(
        [sys.executable, "eval.py", mode, cases], pass_fds=[writing], stdout=subprocess.DEVNULL,
        env=os.environ | {"POPCORN_FD": str(writing), "POPCORN_SEED": seed},
    )
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().split("\\n")
    process.wait()
    return "check: pass" in lines if any(one.startswith("check: ") for one in lines) else None

found = passes("test", "tests.txt") and passes("leaderboard", "benchmarks.txt")
print("" if found is None else "\\naccepted" if found else "\\nrefused")
""",
    }


def _flashinfer(source: str, _: Path) -> Files:
    m, n, k = SHAPE
    axes = {name: {"type": "const", "value": size} for name, size in (("n", n), ("k", k))}
    shapes = {"a": ["m", "k"], "b": ["k", "n"], "c": ["m", "n"]}
    specs = {name: {"shape": shape, "dtype": "float32"} for name, shape in shapes.items()}
    definition = {
        "name": "gemm", "op_type": "gemm", "axes": {**axes, "m": {"type": "var"}},
        "inputs": {name: specs[name] for name in "ab"}, "outputs": {"c": specs["c"]},
        "reference": "import torch\n\ndef run(a, b):\n    return torch.matmul(a, b)\n",
    }  # fmt: skip
    solution = {
        "name": "mine", "definition": "gemm", "author": "mine",
        "spec": {"language": "python", "target_hardware": ["cuda"], "entry_point": "main.py::f",
                 "destination_passing_style": False},
        "sources": [{"path": "main.py", "content": source}],
    }  # fmt: skip
    inputs = {name: {"type": "random"} for name in "ab"}
    workload = {"axes": {"m": m}, "inputs": inputs, "uuid": "one"}
    return {
        "set/definitions/gemm.json": json.dumps(definition),
        "set/solutions/gemm.json": json.dumps(solution),
        "set/workloads/gemm.jsonl": json.dumps(
            {"definition": "gemm", "workload": workload, "solution": None, "evaluation": None}
        ),
        "run.py": """\
from flashinfer_bench import Benchmark, BenchmarkConfig, TraceSet

if __name__ == "__main__":
    found = Benchmark(TraceSet.from_path("set"), BenchmarkConfig.default(timeout_seconds=60))
    traces = found.run_all(dump_traces=False).traces.get("gemm", [])
    states = [one.evaluation.status.value for one in traces]
    print("" if not states else "\\naccepted" if states == ["PASSED"] else "\\nrefused", flush=True)
    found.close()
""",
    }


HARNESSES = (
    Harness("one", "in one process", _one_process),
    Harness("kernelbench", "KernelBench", _kernelbench, ("src",)),
    Harness("gpumode", "GPU MODE", _gpumode),
    Harness("flashinfer", "FlashInfer-Bench", _flashinfer, ("",)),
)
