"""Reads machine code for NVIDIA GPUs (cubins) without a driver: its architecture, and what each
kernel in it takes and needs.

A cubin is an ELF file. Its header and sections are those of the System V ABI. NVIDIA documents the
sections with the kernels' properties only by its tool cuobjdump (CUDA Binary Utilities, ``cuobjdump
--dump-elf``), whose names of attributes are used here; the tests compare the values with those that
the compiler reports.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
    """What the machine code states about one kernel; None where it does not."""

    parameter_bytes: tuple[int, ...] | None = None
    """The size of each parameter, in order."""
    registers: int | None = None
    """Per thread."""
    stack_bytes: int | None = None
    """Local memory of a thread: spilled registers and arrays."""
    shared_bytes: int = 0
    """Static shared memory of a block."""
    required_threads: tuple[int, int, int] | None = None
    """The only block that it may be launched with."""
    max_threads: int | None = None
    """The most threads of a block."""
    cluster: tuple[int, int, int] | None = None
    """The clusters that it was compiled for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinContents:
    """A cubin's architecture and kernels."""

    number: int
    """90 for sm_90."""
    is_specific: bool
    """Whether it uses instructions of this architecture alone (``sm_90a``)."""
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
    """What a cubin contains.

    Raises:
        CubinError: it is something else, or it is cut off.
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
    attributes = _attributes(compatibility.content if compatibility else b"")
    return flags >> 8 & 0xFF, any(
        attribute == _ACCELERATOR_TARGET and value == b"\x01" for attribute, value in attributes
    )


def _sections(data: bytes) -> list[_ElfSection]:
    segments, table = struct.unpack_from("<QQ", data, 32)
    segment_bytes, segment_count, entry_bytes, count, names_index = struct.unpack_from(
        "<HHHHH", data, 54
    )
    if segments + segment_bytes * segment_count > len(data):
        raise CubinError("it is damaged or cut off")
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + entry_bytes * index)
        for index in range(count)
    ]
    for header in headers:
        if header[1] != _NO_BITS and header[4] + header[5] > len(data):
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
    """Number and value of each attribute of a section of attributes."""
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
    found = CubinKernel()
    for attribute, value in _attributes(content):
        if attribute == _PARAMETER:
            (ordinal,) = struct.unpack_from("<H", value, 4)
            parameters[ordinal] = struct.unpack_from("<I", value, 8)[0] >> 18
        elif attribute == _PARAMETER_V2:
            ordinal, _offset, size = struct.unpack_from("<HHH", value, 4)
            parameters[ordinal] = size
        elif attribute == _MAX_THREADS:
            x, y, z = struct.unpack_from("<III", value)
            found = replace(found, max_threads=x * y * z)
        elif attribute == _REQUIRED_THREADS:
            x, y, z = struct.unpack_from("<III", value)
            found = replace(found, required_threads=(x, y, z))
        elif attribute == _CLUSTER:
            x, y, z = struct.unpack_from("<III", value)
            found = replace(found, cluster=(x, y, z))
    sizes = tuple(size for _, size in sorted(parameters.items()))
    return replace(found, parameter_bytes=sizes)
