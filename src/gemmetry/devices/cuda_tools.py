"""NVIDIA's command-line tools for machine code: where they are, and what nvdisasm shows."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from gemmetry.devices.cuda_elf import read_cubin

TIMEOUT_S = 60.0
"""Time limit: a kernel of usual size takes 20 to 500 ms, so only a tool that hangs reaches it."""

_TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
"""A line of nvdisasm: the address, a predicate, and the instruction's name."""


class NoDisassemblerError(Exception):
    """No tool could disassemble machine code; the message states what was tried."""


def cuda_tools(name: str) -> Iterator[Path]:
    """The programs called `name`: on PATH, in the toolkit that CUDA_HOME or CUDA_PATH names, and in
    Triton's package."""
    if on_path := shutil.which(name):
        yield Path(on_path)
    roots = [Path(os.environ[name]) for name in _TOOLKIT_VARIABLES if os.environ.get(name)]
    triton = importlib.util.find_spec("triton")
    packaged = (triton.submodule_search_locations if triton else None) or ()
    roots += [Path(root) / "backends" / "nvidia" for root in packaged]
    for root in roots:
        if (root / "bin" / name).is_file():
            yield root / "bin" / name


def disassembler_key() -> str:
    """Differs for another nvdisasm: the hash of the path, size and time of each that would be
    tried."""
    found = [(str(path), path.stat()) for path in cuda_tools("nvdisasm")]
    text = repr([(path, facts.st_size, facts.st_mtime_ns) for path, facts in found])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def instructions_of(code: bytes) -> frozenset[str]:
    """The names of the instructions in machine code, with their suffixes:
    ``HGMMA.64x256x16.F32.BF16``.

    Raises:
        NoDisassemblerError: there is no nvdisasm, or none that reads this code.
    """
    return frozenset(name for _, name in _disassembled(code, "-c", "-ndf"))


def instructions_of_each(codes: Sequence[bytes]) -> list[frozenset[str]]:
    """As :func:`instructions_of` for each of several cubins of one architecture, in a single run of
    nvdisasm: its start takes 0.25 s, the instructions of a kernel 0.01 s.

    Raises:
        NoDisassemblerError: there is no nvdisasm, or none that reads this code. CubinError: one is
            no cubin.
    """
    if not codes:
        return []
    contents = [read_cubin(code) for code in codes]
    (architecture,) = {one.architecture for one in contents}
    ends = list(accumulate(len(one.instructions) for one in contents))
    found: list[set[str]] = [set() for _ in contents]
    raw = b"".join(one.instructions for one in contents)
    name_of_tool = architecture.replace("sm_", "SM")
    for address, name in _disassembled(raw, "--binary", name_of_tool):
        found[bisect_right(ends, int(address, 16))].add(name)
    return [frozenset(names) for names in found]


def _disassembled(code: bytes, *options: str) -> list[tuple[str, str]]:
    """Address and name of each instruction."""
    failures = []
    with tempfile.TemporaryDirectory(prefix="gemmetry-nvdisasm-") as temporary:
        file = Path(temporary) / "kernel.cubin"
        file.write_bytes(code)
        for program in cuda_tools("nvdisasm"):
            try:
                done = subprocess.run(
                    [str(program), *options, str(file)],
                    capture_output=True, timeout=TIMEOUT_S, check=True,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError) as error:
                failures.append(f"{program}: {type(error).__name__}")
                continue
            found = _INSTRUCTION.findall(done.stdout.decode(errors="replace"))
            if found:
                return found
            failures.append(f"{program}: no instructions")
    tried = "; ".join(failures) or "nvdisasm is not on PATH, below CUDA_HOME or in Triton's package"
    raise NoDisassemblerError(tried)
