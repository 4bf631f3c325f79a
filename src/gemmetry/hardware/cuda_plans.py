"""Kernels and launches of one product on an NVIDIA GPU, described without a GPU, a driver or a
compiler: sources with their macros, grids, arguments, tensor maps.

Reads machine code for NVIDIA GPUs (cubins) without a driver: its architecture, and what each
kernel in it takes and needs.

A cubin is an ELF file. Its header and sections are those of the System V ABI. NVIDIA documents the
sections with the kernels' properties only by its tool cuobjdump (CUDA Binary Utilities, ``cuobjdump
--dump-elf``), whose names of attributes are used here; the tests compare the values with those that
the compiler reports.

Output of ptxas about the kernels that it assembles, alone or as the last stage of NVRTC.

NVIDIA's command-line tools for machine code: where they are, and what nvdisasm shows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

Macros = tuple[tuple[str, int], ...]
Extent = tuple[int, int, int]
"""Sizes along x, y and z."""

ADDRESS_ALIGNMENT = 16
"""Alignment in bytes that the copy engine requires of addresses and strides (CUDA Driver API,
cuTensorMapEncodeTiled)."""
LARGEST_BOX = 256
"""Maximum number of elements of a box along an axis (the same page)."""

ELEMENT_BYTES = {"u8": 1, "f16": 2, "bf16": 2, "f32": 4}
"""Formats of elements that the copy engine distinguishes, and their sizes."""


def macros_of(**values: int) -> Macros:
    """Macros in the form that compilations take, in alphabetical order."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Blocks and threads of a launch, and their arguments."""

    blocks: Extent
    threads: Extent
    cluster: Extent = (1, 1, 1)
    """Blocks that are scheduled together; `blocks` is a multiple of it along each axis."""
    dynamic_bytes: int = 0
    """Dynamic shared memory of each block."""
    starts_early: bool = False
    """Whether blocks may start before the previous kernel of the stream has ended; such a kernel
    waits by ``griddepcontrol.wait`` before it touches memory (CUDA C++ Programming Guide,
    programmatic dependent launch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """A tensor without its address, and the boxes in which it is copied; the innermost axis, whose
    elements are contiguous, comes first."""

    element: str
    """``bf16``, ``f16``, ``f32``, or ``u8`` for any format of one byte."""
    extents: tuple[int, ...]
    """Elements along each axis, one to five of them."""
    box: tuple[int, ...]
    """Elements of a box along each axis, at most 256."""
    strides: tuple[int, ...] = ()
    """Bytes between neighbours along each axis after the innermost, multiples of 16; (): nothing
    lies between the rows."""
    swizzle_bytes: int = 0
    """Swizzle: 0, 32, 64 or 128; a row of the box must fit into it."""
    promotion_bytes: int = 0
    """Bytes that the L2 cache fetches at a time: 0 (no more than requested), 64, 128 or 256."""
    nan_outside: bool = False
    """Whether elements outside the tensor are read as NaN instead of as zero."""

    @property
    def bytes(self) -> int:
        """Bytes of one box, which a copy adds to a barrier."""
        return math.prod(self.box) * ELEMENT_BYTES[self.element]

    @property
    def all_strides(self) -> tuple[int, ...]:
        """The strides, also where they follow from the extents."""
        size = ELEMENT_BYTES[self.element]
        packed = (math.prod(self.extents[:axis]) * size for axis in range(1, len(self.extents)))
        return self.strides or tuple(packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Source and options of one piece of machine code."""

    source: str
    """A file below ``kernels/`` without ``.cu``: ``gemm/r00_naive``."""
    macros: Macros = ()
    entry: str = "gemm"
    """The kernel's name in the source."""
    options: tuple[str, ...] = ()
    """More options for NVRTC."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is the address of a buffer."""

    buffer: str
    """The role of a tensor of the operation (``lhs``, ``rhs``, ``bias``, ``result`` …), or the name
    of a workspace."""
    offset_bytes: int = 0
    alignment: int = 1
    """Required alignment of the address in bytes, for kernels that load vectors."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """An argument that is a tensor map of a buffer."""

    buffer: str
    """Buffer as in :class:`Pointer`."""
    boxes: Boxes
    offset_bytes: int = 0

    @property
    def alignment(self) -> int:
        """Required alignment of the address in bytes."""
        return ADDRESS_ALIGNMENT


Argument = Pointer | Tiles | int | float | tuple[int, ...] | bytes | None
"""A buffer; a number, which is passed as a 32-bit int or float; the ints of a struct, or its bytes;
or a pointer that is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One launch of one kernel."""

    compilation: Compilation
    grid: Grid
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """The launches, in order, that compute a product."""

    launches: tuple[KernelLaunch, ...]
    workspaces: Mapping[str, int] = field(default_factory=dict)
    """Name -> bytes of memory that holds zeros before the first launch, and afterwards what the
    previous launch left there."""


_HEADER_BYTES = 64
_MAGIC = b"\x7fELF\x02\x01"
"""An ELF file with 64-bit addresses, the least significant byte first."""
_MACHINE_CUDA = 190
"""EM_CUDA of elf.h."""
_SYMBOL_TABLE, _NO_BITS = 2, 8
"""SHT_SYMTAB and SHT_NOBITS of elf.h."""
_FUNCTION, _GLOBAL = 2, 1
"""STT_FUNC and STB_GLOBAL of elf.h."""
_ACCELERATOR_TARGET = 0x09
"""Attribute EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET of the section ``.nv.compat``."""
_INDIRECT = 0x04
"""Format of an attribute whose value is not in its four bytes, but follows them."""

_PARAMETER, _PARAMETER_V2 = 0x17, 0x45
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_CLUSTER = 0x3D
_REGISTERS, _STACK = 0x2F, 0x11
"""Attributes EIATTR_KPARAM_INFO, its second version, MAX_THREADS, REQNTID, CTA_PER_CLUSTER,
REGCOUNT and FRAME_SIZE."""

_RESERVED_SYMBOL = ".nv.reservedSmem.offset0"
_RESERVED_BYTES = 1024
"""Shared memory that the system reserves in each block from sm_90 on, and that sections of static
shared memory include (CUDA C++ Programming Guide, compute capability 9.0)."""


class CubinError(ValueError):
    """A file is not machine code that can be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinKernel:
    """Facts about one kernel in the machine code; None where it states none."""

    parameter_bytes: tuple[int, ...] | None = None
    """The size of each parameter, in order."""
    registers: int | None = None
    """Per thread."""
    stack_bytes: int | None = None
    """Local memory of a thread: spilled registers and arrays."""
    shared_bytes: int = 0
    """Static shared memory of a block."""
    required_threads: tuple[int, int, int] | None = None
    """The only block size of a launch."""
    max_threads: int | None = None
    """The most threads of a block."""
    cluster: tuple[int, int, int] | None = None
    """Cluster for which the kernel was compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinContents:
    """A cubin's architecture and kernels."""

    number: int
    """90 for sm_90."""
    is_specific: bool
    """Whether the code uses instructions of this architecture alone (``sm_90a``)."""
    kernels: Mapping[str, CubinKernel]
    instructions: bytes = b""
    """The sections with machine instructions, one after the other."""

    @property
    def architecture(self) -> str:
        """``sm_90``, or ``sm_90a``."""
        return f"sm_{self.number}{'a' if self.is_specific else ''}"

    def runs_on(self, architecture: str) -> bool:
        """Whether a device of `architecture` (``sm_90``) runs it: those of the same major version
        with at least this minor one, and only this one if the code is specific (CUDA C++
        Programming Guide, binary compatibility)."""
        number = int(re.sub(r"\D", "", architecture) or 0)
        if self.is_specific:
            return number == self.number
        return number // 10 == self.number // 10 and number >= self.number


@dataclass(frozen=True, slots=True)
class _ElfSection:
    name: str
    kind: int
    size: int
    content: bytes


def read_cubin(data: bytes) -> CubinContents:
    """Read the content of a cubin.

    Raises:
        CubinError: `data` is no cubin, or cut off.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEADER_BYTES:
        raise CubinError("it is not an ELF file" if data else "it is empty")
    try:
        return _contents(data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise CubinError("it is damaged or cut off") from None


def _contents(data: bytes) -> CubinContents:
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine != _MACHINE_CUDA:
        raise CubinError(f"it is an ELF file for the machine {machine}, not for NVIDIA GPUs")
    sections = _sections(data)
    by_name = {section.name: section for section in sections}
    number, is_specific = _architecture(data, by_name.get(".nv.compat"))
    symbols = list(_symbols(sections))
    reserved = _RESERVED_BYTES if any(name == _RESERVED_SYMBOL for _, name, _ in symbols) else 0
    stated = dict(_of_symbols(by_name.get(".nv.info")))
    kernels = {}
    for index, name, is_entry in symbols:
        info = by_name.get(f".nv.info.{name}")
        if not is_entry or info is None:
            continue
        static = by_name.get(f".nv.shared.{name}")
        kernels[name] = replace(
            _kernel(info.content),
            registers=stated.get((_REGISTERS, index)),
            stack_bytes=stated.get((_STACK, index)),
            shared_bytes=max(static.size - reserved, 0) if static else 0,
        )
    return CubinContents(
        number=number,
        is_specific=is_specific,
        kernels=kernels,
        instructions=b"".join(one.content for one in sections if one.name.startswith(".text.")),
    )


def _architecture(data: bytes, compatibility: _ElfSection | None) -> tuple[int, bool]:
    """The number, and whether the code is specific to it. Their place depends on the version of
    the ABI (LLVM, ``BinaryFormat/ELF.h``, EF_CUDA_SM_MASK and EF_CUDA_ACCELERATORS)."""
    (flags,) = struct.unpack_from("<I", data, 48)
    if data[8] < 8:
        return flags & 0xFF, bool(flags & 0x800)
    attributes = list(_attributes(compatibility.content if compatibility else b""))
    return flags >> 8 & 0xFF, (_ACCELERATOR_TARGET, b"\x01") in attributes


def _sections(data: bytes) -> list[_ElfSection]:
    segments, table = struct.unpack_from("<QQ", data, 32)
    segment_bytes, segment_count, entry_bytes, count, names_index = struct.unpack_from(
        "<HHHHH", data, 54
    )
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + entry_bytes * index)
        for index in range(count)
    ]
    ends = (header[4] + header[5] for header in headers if header[1] != _NO_BITS)
    if max(segments + segment_bytes * segment_count, *ends) > len(data):
        raise CubinError("it is damaged or cut off")
    names = _part(data, headers[names_index])
    return [
        _ElfSection(_text(names, header[0]), header[1], header[5], _part(data, header))
        for header in headers
    ]


def _part(data: bytes, header: tuple[int, ...]) -> bytes:
    return b"" if header[1] == _NO_BITS else data[header[4] : header[4] + header[5]]


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode() if start < len(names) else ""


def _symbols(sections: list[_ElfSection]) -> Iterator[tuple[int, str, bool]]:
    """Index, name, and whether it is a function that others can call."""
    names = next((one.content for one in sections if one.name == ".strtab"), b"")
    table = next((one.content for one in sections if one.kind == _SYMBOL_TABLE), b"")
    for index in range(len(table) // 24):
        name, info = struct.unpack_from("<IB", table, 24 * index)
        yield index, _text(names, name), info & 0xF == _FUNCTION and info >> 4 >= _GLOBAL


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and value of each attribute in a section."""
    position = 0
    while position + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, position)
        position += 4
        if form == _INDIRECT:
            yield attribute, content[position : position + size]
            position += size
        else:
            yield attribute, content[position - 2 : position - 1]


def _of_symbols(section: _ElfSection | None) -> Iterator[tuple[tuple[int, int], int]]:
    """(attribute, symbol) -> value, in the section that is about all kernels."""
    for attribute, value in _attributes(section.content if section else b""):
        if attribute in (_REGISTERS, _STACK):
            symbol, number = struct.unpack_from("<II", value)
            yield (attribute, symbol), number


def _kernel(content: bytes) -> CubinKernel:
    parameters: dict[int, int] = {}
    extents: dict[int, Extent] = {}
    for attribute, value in _attributes(content):
        if attribute == _PARAMETER:
            (ordinal,) = struct.unpack_from("<H", value, 4)
            parameters[ordinal] = struct.unpack_from("<I", value, 8)[0] >> 18
        elif attribute == _PARAMETER_V2:
            ordinal, _offset, size = struct.unpack_from("<HHH", value, 4)
            parameters[ordinal] = size
        elif attribute in (_MAX_THREADS, _REQUIRED_THREADS, _CLUSTER):
            extents[attribute] = struct.unpack_from("<III", value)
    most = extents.get(_MAX_THREADS)
    return CubinKernel(
        parameter_bytes=tuple(size for _, size in sorted(parameters.items())),
        max_threads=math.prod(most) if most else None,
        required_threads=extents.get(_REQUIRED_THREADS),
        cluster=extents.get(_CLUSTER),
    )


_SLOWER = re.compile(r"wgmma\b.*\bserialized|setmaxnreg\b.*\bignored|\(C75\d\d\)")
"""Notes that a kernel does not run as it was written: matrix instructions wait for each other
(C7510 to C7514), or registers are not moved between warps (C7508)."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Resources of one thread or block of a kernel."""

    registers: int
    """Registers of a thread."""
    spill_bytes: int
    """Stored to local memory by a thread because registers did not suffice."""
    local_bytes: int
    """Local memory of a thread: its stack, which holds spilled registers and indexed arrays."""
    shared_bytes: int
    """Shared memory of a block that the source declares with its size."""


def ptxas_usage(printed: str) -> dict[str, ResourceUsage]:
    """Symbol -> what the kernel needs, from the lines of ``ptxas -v``."""
    found = {}
    for part in re.split(r"Compiling entry function '", printed)[1:]:
        symbol = part.partition("'")[0]
        registers = _number(r"Used (\d+) registers", part)
        spilled = _number(r"(\d+) bytes spill stores", part)
        if registers is not None and spilled is not None:
            local = _number(r"(\d+) bytes stack frame", part) or 0
            shared = _number(r"(\d+) bytes smem", part) or 0
            found[symbol] = ResourceUsage(registers, spilled, local, shared)
    return found


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def performance_notes(printed: str) -> list[str]:
    """The lines that report a kernel that is slower than its source promises: matrix instructions
    that wait for each other, or a request for registers that is ignored."""
    return [line.strip() for line in printed.splitlines() if _SLOWER.search(line)]


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
    """Instructions of several cubins of one architecture, from a single run of nvdisasm: starting
    takes 0.25 s, the instructions of a kernel 0.01 s.

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
    for address, name in _disassembled(raw, "--binary", architecture.replace("sm_", "SM")):
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
