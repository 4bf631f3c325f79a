"""Census of a submission: kernels and operators, libraries, and machine code.

* *its own* account: torch's profiler in the submission's process, which may report anything;
* *machine code*: cubins that the submission's compilers left in its folder, read here;
* *the judge's*: libraries whose code got into the memory of its processes (proc(5), smaps).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gemmetry.domain.rows import Row, fact
from gemmetry.hardware.cuda_plans import (
    CubinError,
    NoDisassemblerError,
    cuda_tools,
    instructions_of,
    read_cubin,
)

_LIBRARY = re.compile(
    r"lib(cublas|cudnn|cusparse|cutensor|mkl|dnnl|onednn|scipy_openblas|openblas|blis|blas|rocblas|"
    r"hipblas|miopen)\w*", re.I,
)  # fmt: skip
"""Libraries of products, of NVIDIA, Intel, AMD and others, by the names of their files."""

_OPERATORS = re.compile(
    r"aten::(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|_scaled_mm|_int_mm|_grouped_mm|"
    r"_addmm_activation|mkldnn_\w+|\w*convolution\w*|\w*scaled_dot_product\w*attention\w*)(_out)?$"
)
"""Operators of torch that call a library of products (native_functions.yaml)."""

_FAMILIES = frozenset(
    ("cublas", "cublaslt", "nvjet", "xmma", "cudnn", "hipblaslt", "tensile", "rocblas")
)
"""Families of :mod:`gemmetry.traces.names` whose kernels come with a vendor's library."""

_TEMPLATES = frozenset(("cutlass2", "cutlass3", "ck"))
"""Families of templates: named, and not forbidden, as a submission compiles them itself."""

LEAST_CODE_BYTES = 2**16
"""More code than this is in memory since a library ran: one page fault maps up to 64 KiB."""

_TENSOR = re.compile(r"^(?:HGMMA|HMMA|IMMA|IGMMA|DMMA|QGMMA|QMMA|OMMA|UTC\w*MMA)\b")
"""Instructions of tensor cores in NVIDIA's machine code (CUDA Binary Utilities)."""

_MOST_CUBINS, _MOST_FILE_BYTES = 64, 2**28


class Ran(Row):
    """Work that ran, or was compiled to run."""

    name: str = fact("kernel, operator or library")
    kind: str = fact("kernel, operator, library or machine code")
    account: str = fact("whose account it is: its own, machine code, or the judge's")
    library: str = fact("the vendor's library that it belongs to", default="")
    count: int | None = fact("launches or calls", default=None)
    instructions: str = fact("instructions of tensor cores", default="")
    accumulator: str = fact("accumulators of those instructions", default="")
    local_bytes: int | None = fact("local memory of a thread", "B", default=None)


def reported(rows: Any) -> list[Ran]:
    """Work that the submission's process reports; empty where the report is malformed."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [str(kind), str(name), int(count)] if kind in ("kernel", "operator"):
                library = _library_of(kind, name)
                if kind == "kernel" or library:
                    found.append(Ran(name=name[:300], kind=kind, account="its own",
                                     library=library, count=count))  # fmt: skip
    return found


def _library_of(kind: str, name: str) -> str:
    if kind == "operator":
        return "torch's" if _OPERATORS.match(name) else ""
    from gemmetry.traces.names import classify

    family = classify(name).family
    return family if family in _FAMILIES | _TEMPLATES else ""


def libraries(before: Mapping[str, int], after: Mapping[str, int]) -> list[Ran]:
    """Libraries of products whose code ran in between."""
    return [
        Ran(name=Path(name).name, kind="library", account="the judge's", library=found[1].lower())
        for name, size in sorted(after.items())
        if (found := _LIBRARY.match(Path(name).name))
        and size - before.get(name, 0) >= LEAST_CODE_BYTES
    ]


def compiled(folder: Path) -> list[Ran]:
    """The kernels in machine code below `folder`: of Triton's cache, and of extensions."""
    found = []
    for code in islice(_cubins(folder), _MOST_CUBINS):
        try:
            contents = read_cubin(code)
        except CubinError:
            continue
        try:
            tensor = sorted(one for one in instructions_of(code) if _TENSOR.match(one))
        except NoDisassemblerError:
            tensor = []
        for name, kernel in contents.kernels.items():
            found.append(
                Ran(name=name[:300], kind="machine code", account="machine code",
                    instructions=" ".join(tensor), accumulator=" ".join(_accumulators(tensor)),
                    local_bytes=kernel.stack_bytes)
            )  # fmt: skip
    return found


def _accumulators(instructions: Iterable[str]) -> list[str]:
    """The format after the shape, in which an instruction adds up: F32 of
    ``HGMMA.64x256x16.F32.BF16`` and of ``HMMA.16816.F32``."""
    found = set()
    for one in instructions:
        family, *parts = one.split(".")
        formats = [part for part in parts if re.fullmatch(r"[FS]\d+|BF16", part)]
        usual = {"D": "F64", "I": "S32"}.get(family[0], "F32")
        found.add(formats[0] if formats else usual)
    return sorted(found)


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    """Plain files of usual size."""
    for path in sorted(folder.rglob(pattern)):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_FILE_BYTES:
            yield path


def _cubins(folder: Path) -> Iterator[bytes]:
    for path in _files(folder, "*.cubin"):
        yield path.read_bytes()
    for path in _files(folder, "*.so"):
        if b".nv_fatbin" in path.read_bytes():
            yield from _extracted(path)


def _extracted(library: Path) -> list[bytes]:
    """The cubins in a shared object, by the toolkit's cuobjdump; none where it is missing."""
    for program in cuda_tools("cuobjdump"):
        with tempfile.TemporaryDirectory(prefix="gemmetry-census-") as place:
            command = [str(program), "-xelf", "all", str(library)]
            try:
                subprocess.run(command, cwd=place, capture_output=True, timeout=60, check=True)
            except (OSError, subprocess.SubprocessError):
                continue
            if found := [one.read_bytes() for one in sorted(Path(place).glob("*.cubin"))]:
                return found
    return []


def of_libraries(rows: Sequence[Ran]) -> list[str]:
    """Sentences about what came from a vendor's library."""
    return [
        f"{one.kind} {one.name[:120]}, by {one.account} account"
        if one.account == "its own"
        else f"code of {one.name} ran"
        for one in rows
        if one.library and one.library not in _TEMPLATES
    ]
