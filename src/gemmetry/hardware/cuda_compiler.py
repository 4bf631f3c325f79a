"""Compiles this package's CUDA C++ sources with NVRTC, which needs neither a GPU nor a toolkit."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc

from gemmetry.domain.errors import CompileError
from gemmetry.domain.files import write_whole
from gemmetry.hardware.cuda_plans import Compilation, Macros

SOURCES = resources.files("gemmetry.providers.kernels")
"""Folder of the sources, which are package data."""

_DIGEST_BYTES, _SIZE_BYTES = 32, 8
_MISSING = (
    "Install NVRTC: pip install 'gemmetry[cuda]', which matches the version of cuda-bindings."
)


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one architecture, the compiler's output, and PTX."""

    code: bytes
    log: str
    ptx: str = ""


@dataclass(frozen=True, slots=True)
class _Request:
    """Everything that the machine code depends on, apart from the compiler."""

    name: str
    source: bytes
    headers: tuple[tuple[str, bytes], ...]
    options: tuple[str, ...]


@cache
def compile_source(name: str, macros: Macros, architecture: str) -> Cubin:
    """Compile ``kernels/<name>.cu``; the process keeps the machine code.

    Args:
        name: including the folder: ``mutants/tiled_matmul``.
        macros: macros to define.
        architecture: ``sm_90a`` …

    Raises:
        CompileError: the compiler rejected the source; the message is its first line.
    """
    return compile_file(SOURCES, name, macros, architecture)


def compile_kept(
    compilation: Compilation, architecture: str, kept_in: Path | None, *, fresh: bool = False
) -> Cubin:
    """Compile a source of this package; see :func:`compile_file`.

    Raises:
        CompileError: the compiler is missing, or rejected the source.
    """
    return compile_file(
        SOURCES, compilation.source, compilation.macros, architecture,
        options=compilation.options, kept_in=kept_in, fresh=fresh,
    )  # fmt: skip


def compilation_key(compilation: Compilation, architecture: str) -> str:
    """A name for the machine code of a source of this package: the same for the same source,
    headers, options and version of NVRTC.

    Raises:
        CompileError: the compiler is missing.
    """
    source, macros = compilation.source, compilation.macros
    return _key(_request(SOURCES, source, macros, architecture, compilation.options))


def compile_file(
    folder: Traversable,
    name: str,
    macros: Macros,
    architecture: str,
    *,
    options: tuple[str, ...] = (),
    kept_in: Path | None = None,
    fresh: bool = False,
) -> Cubin:
    """Compile ``<name>.cu`` of `folder`; its own folder is the include path.

    Args:
        name: with the folders that it is in, below `folder`.
        options: more options for NVRTC.
        kept_in: a folder with the machine code of earlier calls. It is found again as long as the
            source, the headers, the options and NVRTC's version are the same; a damaged file is
            replaced.
        fresh: compile again even where it is found.

    Raises:
        CompileError: the compiler is missing, or rejected the source; the message is its first
            line.
    """
    request = _request(folder, name, macros, architecture, options)
    if kept_in is None:
        return _compile(request, architecture)
    file = kept_in / f"{_key(request)}.cubin"
    found = None if fresh else _read_kept(file)
    if found is None:
        found = _compile(request, architecture)
        _keep(file, found)
    return found


def _request(
    folder: Traversable, name: str, macros: Macros, architecture: str, options: tuple[str, ...]
) -> _Request:
    *folders, name = name.split("/")
    folder = folder.joinpath(*folders)
    return _Request(
        name,
        (folder / f"{name}.cu").read_bytes(),
        tuple(
            (entry.name, entry.read_bytes())
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if entry.name.endswith(".cuh")
        ),
        (
            f"--gpu-architecture={architecture}",
            "--std=c++17",
            "--ptxas-options=-v",
            *options,
            *(f"-D{macro}={value}" for macro, value in macros),
        ),
    )


def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version, as (13, 0).

    Raises:
        CompileError: NVRTC's library is missing.
    """
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # The bindings do not find the library.
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise CompileError(f"NVRTC cannot be loaded: {line}", hint=_MISSING) from error
    _nvrtc(status, "querying its version")
    return major, minor


def _compile(request: _Request, architecture: str) -> Cubin:
    nvrtc_version()
    name = request.name
    status, program = nvrtc.nvrtcCreateProgram(
        request.source,
        f"{name}.cu".encode(),
        len(request.headers),
        [content for _, content in request.headers],
        [header.encode() for header, _ in request.headers],
    )
    _nvrtc(status, f"creating {name}")
    options = [option.encode() for option in request.options]
    # Without this option NVRTC may take machine code from its own cache, and then reports no
    # registers; versions that do not know the option have no such cache.
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options) + 1, [*options, b"--no-cache"])
    if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    try:
        log = fetched(program, "ProgramLog").decode(errors="replace").strip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            lines = [line for line in log.splitlines() if line.strip()] or [status.name]
            raise CompileError(f"NVRTC rejected {name} for {architecture}: {lines[0]}")
        code, ptx = fetched(program, "CUBIN"), fetched(program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(code, log, ptx.decode(errors="replace").rstrip("\0"))


def _key(request: _Request) -> str:
    """A hash of the request and the compiler's version."""
    parts = [
        repr(nvrtc_version()).encode(),
        repr(request.options).encode(),
        request.source,
        *(part for header, content in request.headers for part in (header.encode(), content)),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(_SIZE_BYTES, "little") + part)
    return f"{request.name}-{digest.hexdigest()[:24]}"


def _read_kept(file: Path) -> Cubin | None:
    """Content that :func:`_keep` wrote; None if there is no such file, or it is damaged."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    texts = []
    for _ in range(2):
        size = int.from_bytes(content[:_SIZE_BYTES], "little")
        texts.append(content[_SIZE_BYTES : _SIZE_BYTES + size].decode())
        content = content[_SIZE_BYTES + size :]
    log, ptx = texts
    return Cubin(content, log, ptx)


def _keep(file: Path, cubin: Cubin) -> None:
    """Write the texts and the machine code after their hash. A folder that cannot be written only
    means that the source is compiled again."""
    texts = (cubin.log.encode(), cubin.ptx.encode())
    content = b"".join(len(text).to_bytes(_SIZE_BYTES, "little") + text for text in texts)
    content += cubin.code
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, hashlib.sha256(content).digest() + content)


def fetched(program: Any, what: str) -> bytes:
    """``CUBIN``, ``PTX`` or ``ProgramLog`` of an NVRTC program.

    Raises:
        CompileError: NVRTC does not have `what`.
    """
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _nvrtc(status, f"querying the size of the {what}")
    # Not bytes: NVRTC writes into the buffer, and Python shares bytes objects of length 1, which is
    # the length of an empty log.
    memory = bytearray(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, memory)
    _nvrtc(status, f"fetching the {what}")
    return bytes(memory)


def _nvrtc(status: Any, doing: str) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed while {doing}: {status.name}")
