"""Judge drawn kernels of a public release: build, verify at f32 and at f16, time.

    python benchmarks/audit/audit.py KERNELS --cutlass INCLUDE [--until drawn|built|verified|timed]

KERNELS is the folder of the release's files, ``M_N_K.cu``; INCLUDE has the headers of CUTLASS (the
folders ``include`` and ``tools/util/include`` of its package). Kernels are drawn at random within
each class of ``classify.py``, by a seed, without those that the release calls with larger operands
and those of which the text does not show which form of B they read. Each is built by nvcc and
verified by ``gemmetry verify run`` in processes of its own; ``gemmetry profile`` times all of them
with torch and the best of cuBLASLt. Everything is kept in the folder ``--work``: the same command
resumes, and what exists is not done again. At the deadline what was reached is written. Rows that
OUTPUT has of other kernels, or of earlier stages, stay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Semaphore
from typing import Any

from classify import CLASSES, Kernel, classify_all

HERE = Path(__file__).resolve().parent
COUNTS = {"f16": 26, "f16 partials": 8, "both": 8, "own stream": 12, "f32": 34, "unknown": 1}
"""Kernels to draw of each class, or all that there are."""
STAGES = ("drawn", "built", "verified", "timed")
ACCUMULATORS = ("f32", "f16")

_TORCH_HEADERS = (
    "torch/extension.h", "torch/types.h", "c10/cuda/CUDAStream.h", "ATen/cuda/CUDAContext.h",
)  # fmt: skip
_WRAPPED = (
    "__cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchCooperativeKernel",
    "cudaLaunchKernelExC", "cudaMemsetAsync", "cudaEventRecord", "cudaGraphLaunch",
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "cudaFree",
)  # fmt: skip
"""Functions of the runtime that ``door.h`` replaces."""
LATE = "not done after"
"""Text in the log of a command that was ended because its time was over."""
CONFIGURATIONS = {"cublaslt": "best"}
"""What is timed of a provider, where that is not its ``default``."""
_OPTIONS = (
    "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden,-fno-gnu-unique", "-O3", "-std=c++17",
    "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math", "-w", "-gencode",
    "arch=compute_90a,code=sm_90a", "-DNO_MMA_HGEMM_BIN", "-DNO_WMMA_HGEMM_BIN",
    "-DNO_CUTE_HGEMM_BIN", "-DNO_CUBLAS_HGEMM_BIN",
)  # fmt: skip
"""The release's own options (``tools/utils.py``), for a shared object."""
_BUILD_S, _VERIFY_S, _DEADLINE_S = 400.0, 300.0, 120
"""Most time of a build, of both verifications, and of one of them before its worker is ended."""
_VERIFIED_AT_ONCE = 5
"""Verifications that share the device; what they find does not depend on time."""


def draw(kernels: Iterable[Kernel], counts: dict[str, int], seed: int) -> list[Kernel]:
    """Kernels at random within each class, in an order that is random too, so that the first ones
    are a smaller draw."""
    usable = [one for one in kernels if one.operand and not one.padded]
    rng = random.Random(seed)
    drawn: list[Kernel] = []
    for kind in CLASSES:
        of_kind = sorted((one for one in usable if one.kind == kind), key=lambda one: one.name)
        drawn += rng.sample(of_kind, min(counts.get(kind, 0), len(of_kind)))
    rng.shuffle(drawn)
    return drawn


@dataclass
class Audit:
    """The folder of an audit, and until when it may run (seconds of the monotonic clock)."""

    sources: Path
    cutlass: Path
    work: Path
    device: str
    rivals: tuple[str, ...]
    deadline: float

    def left(self, most: float) -> float:
        """Seconds that a step may take; at least one, so that what is late ends by itself."""
        return max(1.0, min(most, self.deadline - time.monotonic()))

    def library(self, kernel: Kernel) -> Path:
        return self.work / "built" / f"{kernel.name}.so"

    def log(self, kernel: Kernel) -> Path:
        return self.work / "built" / f"{kernel.name}.log"

    def verdicts(self, kernel: Kernel) -> Path:
        return self.work / "verified" / f"{kernel.name}.json"

    @property
    def times(self) -> Path:
        return self.work / "times.json"

    def build(self, kernel: Kernel) -> bool:
        """Compile and link, unless the library is there and can be loaded; its log is kept."""
        library = self.library(kernel)
        if _loads(library):
            return True
        source = library.with_suffix(".cu")
        source.write_text(
            f'#include "{(self.sources / kernel.name).resolve()}.cu"\n#include "door.h"\n'
        )
        wrapped = ",".join(f"--wrap={name}" for name in _WRAPPED)
        folders = (self.work / "include", HERE, self.cutlass / "include")
        command = [
            "nvcc", *_OPTIONS, *(f"-I{one}" for one in folders),
            f"-I{self.cutlass / 'tools/util/include'}", "-Xlinker", wrapped,
            str(source), "-o", str(library),
        ]  # fmt: skip
        output = _run(command, self.left(_BUILD_S))
        self.log(kernel).write_text(output.text)
        return _loads(library)

    def verify(self, kernel: Kernel) -> None:
        """Verdicts at both accumulators, by gemmetry's own command, in processes of its own."""
        if self.verdicts(kernel).is_file():
            return
        folder = self.work / "verified" / kernel.name
        folder.mkdir(parents=True, exist_ok=True)
        entry = _with_entry(folder)
        shutil.copy(self.library(kernel), folder)
        names = ",".join(f"{kernel.operation(one)}_default" for one in ACCUMULATORS)
        command = [
            sys.executable, "-m", "gemmetry", "verify", "run", "--providers", "user",
            "--kernel", entry, "--dispatches", names, "--device", self.device,
            "--verification-providers", "device", "--fresh", "--json",
            "--set", f"deadlines.verify={_DEADLINE_S}", "--experiment", str(folder / "experiment"),
        ]  # fmt: skip
        output = _run(command, self.left(_VERIFY_S))
        if output.document is not None:
            self.verdicts(kernel).write_text(json.dumps(output.document["records"]))
        else:
            self.log(kernel).write_text(output.text)

    def runs(self, kernel: Kernel) -> bool:
        """Whether it was verified and neither crashed nor hung."""
        if not self.verdicts(kernel).is_file():
            return False
        found = json.loads(self.verdicts(kernel).read_text())
        return all(record["outcome"] in ("ok", "wrong") for record in found)

    def time(self, kernels: Sequence[Kernel]) -> None:
        """Times of all kernels in turns with those of libraries; of right and of wrong ones."""
        entry = _with_entry(self.work / "built")
        plan = {
            "device": self.device,
            "providers": [*self.rivals, {"name": "user", "options": {"kernel": entry}}],
            "dispatches": [
                f"{provider}:{kernel.operation()}_{CONFIGURATIONS.get(provider, 'default')}"
                for kernel in kernels
                for provider in (*self.rivals, "user")
            ],
            "experiment": str(self.work / "timed"),
            "verification_enabled": False,
            "timing_method": "graph",
            "processes": 1,
            "time_budget": "200ms",
            "interval_width": 0.01,
        }
        spec = self.work / "timed.yaml"
        spec.write_text(json.dumps(plan))  # JSON is YAML
        command = [sys.executable, "-m", "gemmetry", "profile", "--spec", str(spec), "--json"]
        output = _run(command, self.left(1e9))
        (self.work / "timed.log").write_text(output.text)
        if output.document is None:  # late: what is stored is reported
            report = ["report", str(self.work / "timed"), "--json"]
            output = _run([sys.executable, "-m", "gemmetry", *report], 60)
        if output.document is not None:
            self.times.write_text(json.dumps(output.document["records"]))


@dataclass
class Output:
    """What a command printed, and the JSON document of its standard output, if it is one."""

    text: str
    document: dict[str, Any] | None


def _run(command: Sequence[str], seconds: float) -> Output:
    """Run a command, and end it with what it started if it takes longer than `seconds`."""
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        return Output(f"{command[0]}: {error.strerror}", None)
    late = ""
    try:
        printed, messages = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        printed, messages = started.communicate()
        late = f"\nerror: {LATE} {seconds:.0f} s"
    try:
        document = json.loads(printed)
    except json.JSONDecodeError:
        document = None
    return Output(f"{printed}{messages}{late}", document)


def _loads(library: Path) -> bool:
    """Whether the library exists and this machine can load it (in a process of its own: what it
    does when it is loaded is its own affair)."""
    if not library.is_file():
        return False
    program = f"import ctypes; ctypes.CDLL({str(library)!r}).launch"
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def _with_entry(folder: Path) -> str:
    """``file:function`` of a copy of the entry in `folder`, which finds the libraries there."""
    return f"{shutil.copy(HERE / 'released_kernel.py', folder)}:released"


def rows_of(audit: Audit, kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """One row a kernel: what the text showed, what was built and found, and the times in ns."""
    timed: dict[tuple[str, str], dict[str, Any]] = {}
    if audit.times.is_file():
        for record in json.loads(audit.times.read_text()):
            timed[record["operation"], record["provider"]] = record
    rows = []
    for kernel in kernels:
        row: dict[str, Any] = {**asdict(kernel), "built": audit.library(kernel).is_file()}
        if audit.log(kernel).is_file():
            errors = audit.log(kernel).read_text().strip().splitlines()
            row["log"] = next(filter(_ERROR.search, errors), "")[:300]
        if audit.verdicts(kernel).is_file():
            for record in json.loads(audit.verdicts(kernel).read_text()):
                row[record["accumulator"]] = _kept(record, _KEPT)
        for provider in ("user", *audit.rivals):
            if found := timed.get((kernel.operation(), provider)):
                row[provider] = _kept(found, _TIMES)
        rows.append(row)
    return rows


_ERROR = re.compile(r"\b(error|fatal)\s*:")
_KEPT = ("outcome", "reason", "accuracy_class", "checks_failed", "checks_incomplete",
         "max_error_ratio")  # fmt: skip
_TIMES = ("outcome", "reason", "median_ns", "ci_low_ns", "ci_high_ns", "method", "marks",
          "configuration")  # fmt: skip
_MOST_TEXT = 120
"""Characters that are kept of a reason."""


def _kept(record: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Columns of a record that say something, texts cut."""

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(cut, value))
        return value[:_MOST_TEXT] if isinstance(value, str) else value

    return {name: cut(record[name]) for name in names if record[name]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, build, verify and time as far as ``--until`` and the deadline allow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--cutlass", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("audit-work"))
    parser.add_argument("-o", "--output", type=Path, default=Path("audit.json"))
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only", help="names of kernels, joined by commas, in place of a draw")
    parser.add_argument("--until", choices=STAGES, default="timed")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rivals", default="torch,cublaslt", help="what is timed as well")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--deadline", type=float, default=86_400.0, help="seconds for everything")
    parser.add_argument("--verify-by", type=float, help="seconds after which times are taken")
    options = parser.parse_args(arguments)
    began, until = time.monotonic(), STAGES.index(options.until)
    found = classify_all(options.kernels)
    if options.only:
        names = options.only.split(",")
        kernels = [one for one in found if one.name in names]
    else:
        kernels = draw(found, COUNTS, options.seed)
    print("\n".join(f"{one.name} {one.kind}" for one in kernels), flush=True)
    work = options.work.resolve()
    for header in _TORCH_HEADERS:
        path = work / "include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#include "tensor.h"\n')
    for folder in ("built", "verified"):
        (work / folder).mkdir(exist_ok=True)
    rivals = tuple(options.rivals.split(","))
    audit = Audit(options.kernels, options.cutlass.resolve(), work, options.device, rivals, began)
    slots = Semaphore(_VERIFIED_AT_ONCE)

    def judge(kernel: Kernel) -> None:
        if audit.left(2.0) < 2 or not audit.build(kernel) or until < STAGES.index("verified"):
            return
        with slots:
            if audit.left(2.0) >= 2:
                audit.verify(kernel)
        print(f"{time.monotonic() - began:4.0f} s {kernel.name}", flush=True)

    if until >= STAGES.index("built"):
        audit.deadline = began + (options.verify_by or options.deadline)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(judge, kernels))
    if until >= STAGES.index("timed"):
        audit.deadline = began + options.deadline
        if running := [one for one in kernels if audit.runs(one)]:
            audit.time(running)
    rows = {}
    if options.output.is_file():
        rows = {row["name"]: row for row in json.loads(options.output.read_text())}
    for row in rows_of(audit, kernels):
        rows[row["name"]] = rows.get(row["name"], {}) | row
    lines = ",\n".join(map(json.dumps, rows.values()))  # One a kernel, for a readable diff.
    options.output.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
