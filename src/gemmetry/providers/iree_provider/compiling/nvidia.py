"""Resource usage of NVIDIA kernels that PTX does not show: ptxas reports registers and spills, and
IREE's binary holds the dynamic shared memory of a launch."""

from __future__ import annotations

import io
import struct
import subprocess
import tempfile
import zipfile
from pathlib import Path

from gemmetry.devices import ptxas
from gemmetry.devices.cuda_tools import TIMEOUT_S, cuda_tools
from gemmetry.providers.iree_provider.compiling.machine_code import Usage

_HEADER_BYTES = 64
"""IREE 3.13 puts a header (magic, version, size) before the flatbuffer of an executable."""
_MAGIC = b"CDA1"
_EXPORTS, _KERNEL_NAME, _SHARED_MEMORY = 0, 1, 3
"""Fields of ExecutableDef and ExportDef in iree/schemas/cuda_executable_def.fbs of IREE 3.13."""


def find_ptxas() -> Path | None:
    """ptxas of a CUDA toolkit, else the one included in Triton's package."""
    return next(cuda_tools("ptxas"), None)


def assemble(ptx: Path, architecture: str, program: Path) -> str:
    """The output of ``ptxas -v`` for all kernels of a PTX file assembled for `architecture` (as the
    driver does when it loads older PTX), preceded by the command."""
    with tempfile.TemporaryDirectory(prefix="gemmetry-ptxas-") as temporary:
        output = str(Path(temporary) / "out.cubin")
        command = [str(program), "-v", f"-arch={architecture}", str(ptx), "-o", output]
        shown = f"ptxas -v -arch={architecture} {ptx.name}"
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"// $ {shown}\n{type(error).__name__}: {error}\n"
    return f"// $ {shown}\n{done.stdout.decode(errors='replace')}"


def ptxas_usage(printed: str) -> dict[str, Usage]:
    """Symbol -> registers and spilled bytes per thread, and static shared memory, from the lines of
    ``ptxas -v``."""
    return {
        symbol: Usage(usage.registers, usage.spill_bytes, usage.shared_bytes)
        for symbol, usage in ptxas.ptxas_usage(printed).items()
    }


def shared_memory(binary: bytes) -> dict[str, int]:
    """Symbol -> dynamic shared memory of a launch in bytes, from a ``.vmfb`` for CUDA; empty if the
    file's layout differs from IREE 3.13's."""
    found: dict[str, int] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(binary)) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
        for part in parts:
            if part.startswith(_MAGIC):
                found.update(_exports(part[_HEADER_BYTES:]))
    except (zipfile.BadZipFile, struct.error, IndexError, UnicodeDecodeError):
        return {}
    return found


def _exports(data: bytes) -> dict[str, int]:
    """Kernel name -> shared memory, from the flatbuffer of a CUDA executable."""

    def u32(at: int) -> int:
        return int(struct.unpack_from("<I", data, at)[0])

    def field(table: int, index: int) -> int | None:
        """Position of a table's field; None where it has its default."""
        vtable = table - int(struct.unpack_from("<i", data, table)[0])
        if 4 + 2 * index >= struct.unpack_from("<H", data, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0]
        return table + offset if offset else None

    exports = field(u32(0), _EXPORTS)
    if exports is None:
        return {}
    vector = exports + u32(exports)
    found = {}
    for number in range(u32(vector)):
        entry = vector + 4 + 4 * number
        export = entry + u32(entry)
        name, size = field(export, _KERNEL_NAME), field(export, _SHARED_MEMORY)
        if name is not None:
            start = name + u32(name)
            text = data[start + 4 : start + 4 + u32(start)].decode("ascii")
            found[text] = u32(size) if size is not None else 0
    return found
