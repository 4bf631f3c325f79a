"""Runs the test suite as on another machine: one without wide vectors, or a busy one.

    python tests/elsewhere.py --masked -- -n 2
    python tests/elsewhere.py --busy 4 -- -n 2 tests/engine

Arguments after ``--`` go to pytest. Both options may be given; docs/testing.md says what each
stands for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MASKS = {
    "x86": {"GEMMETRY_IREE_TARGET_CPU": "haswell", "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
    "arm": {"GEMMETRY_IREE_TARGET_CPU": "generic", "ATEN_CPU_CAPABILITY": "default",
            "OPENBLAS_CORETYPE": "ARMV8"},
}  # fmt: skip
"""The settings that limit each library to the vectors that every server processor since 2013 has:
AVX2 or, on Arm, NEON. The libraries' documentation names them; docs/testing.md has the list."""

_WIDE = ("AVX512", "X86_V4", "SVE")
"""In the names of numpy's features that are wider than that."""

_BUSY = "while True: pass"


def masked_environment() -> dict[str, str]:
    """Variables that keep the libraries from this processor's widest vectors."""
    is_arm = platform.machine().lower() in ("aarch64", "arm64")
    features = " ".join(wide_numpy_features())
    numpy = {"NPY_DISABLE_CPU_FEATURES": features} if features else {}
    return {**_MASKS["arm" if is_arm else "x86"], **numpy}


def wide_numpy_features() -> list[str]:
    """Features by which numpy would choose code on this processor and that are to be disabled.
    numpy warns about a feature that it has no code for or that the processor lacks."""
    try:
        compiled = importlib.import_module("numpy._core._multiarray_umath")
    except ModuleNotFoundError:  # numpy 1
        compiled = importlib.import_module("numpy.core._multiarray_umath")
    found = compiled.__cpu_features__
    return [
        name
        for name in compiled.__cpu_dispatch__
        if found.get(name) and any(wide in name for wide in _WIDE)
    ]


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`count` processes that compute all the time, until the end of the block."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    """Run pytest so; its exit status."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--masked", action="store_true", help="without the widest vectors")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="N busy processes")
    options = parser.parse_args(arguments[:split])
    environment = {**os.environ, **(masked_environment() if options.masked else {})}
    for name, value in environment.items():
        if os.environ.get(name) != value:
            print(f"{name}={value}")
    with busy_processes(options.busy):
        command = [sys.executable, "-m", "pytest", *arguments[split + 1 :]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
