"""Compiles this package's CUDA C++ sources with NVRTC and launches them through the driver.

This requires only ``cuda.bindings``, which CUDA builds of torch include; compiling needs no GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from cuda.bindings import driver, nvrtc

from gemmetry.domain.errors import CompileError

SOURCES = resources.files("gemmetry.kernels")
"""Folder of the sources, which are package data."""


class CudaError(RuntimeError):
    """A call of the driver failed; ``error_code`` is its CUresult."""

    def __init__(self, doing: str, code: int, name: str) -> None:
        super().__init__(f"CUDA error: {name} while {doing}")
        self.error_code = code


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one architecture, and the compiler's output."""

    code: bytes
    log: str


@cache
def compile_source(name: str, macros: tuple[tuple[str, int], ...], architecture: str) -> Cubin:
    """Compile ``kernels/<name>.cu``, with its own folder as include path.

    Args:
        name: including the folder: ``mutants/tiled_matmul``.
        macros: macros to define.
        architecture: ``sm_90a`` …

    Raises:
        CompileError: the compiler rejected it; the message is its first line.
    """
    *folders, name = name.split("/")
    return compile_file(SOURCES.joinpath(*folders), name, macros, architecture)


def compile_file(
    folder: Traversable, name: str, macros: tuple[tuple[str, int], ...], architecture: str
) -> Cubin:
    """Compile ``<name>.cu`` of `folder`, which is the include path too; not cached.

    Raises:
        CompileError: the compiler rejected it; the message is its first line.
    """
    headers = {
        entry.name: entry.read_text().encode()
        for entry in folder.iterdir()
        if entry.name.endswith(".cuh")
    }
    source = (folder / f"{name}.cu").read_text().encode()
    status, program = nvrtc.nvrtcCreateProgram(
        source,
        f"{name}.cu".encode(),
        len(headers),
        list(headers.values()),
        [header.encode() for header in headers],
    )
    _nvrtc(status, f"creating {name}")
    options = [
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        "--ptxas-options=-v",
        *(f"-D{macro}={value}" for macro, value in macros),
    ]
    (status,) = nvrtc.nvrtcCompileProgram(
        program, len(options), [option.encode() for option in options]
    )
    try:
        log = fetched(program, "ProgramLog").decode(errors="replace").strip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            lines = [line for line in log.splitlines() if line.strip()] or [status.name]
            raise CompileError(f"NVRTC rejected {name} for {architecture}: {lines[0]}")
        code = fetched(program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(code, log)


def fetched(program: Any, what: str) -> bytes:
    """``CUBIN`` or ``ProgramLog`` of an NVRTC program.

    Raises:
        CompileError: NVRTC does not have it.
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


def checked(result: Sequence[Any], doing: str) -> Any:
    """The return value of a driver call without its status.

    Raises:
        CudaError: the status is not success.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(doing, int(status), status.name)
    return values[0] if values else None


def device_attribute(name: str) -> int:
    """An attribute of the device whose context is current: ``MULTIPROCESSOR_COUNT`` …, without the
    prefix of names in CUdevice_attribute.

    Raises:
        CudaError: there is no current context.
    """
    doing = f"querying the device for {name}"
    key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    device = checked(driver.cuCtxGetDevice(), doing)
    return int(checked(driver.cuDeviceGetAttribute(key, device), doing))


class Kernel:
    """A kernel loaded into the current context."""

    def __init__(self, cubin: Cubin, name: str) -> None:
        """
        Raises:
            CudaError: the driver rejected it.
        """
        self.name = name
        self._module = checked(driver.cuModuleLoadData(cubin.code), f"loading {name}")
        self._function = checked(
            driver.cuModuleGetFunction(self._module, name.encode()), f"finding {name}"
        )

    def attribute(self, attribute: str) -> int:
        """An attribute of the kernel: ``NUM_REGS``, ``SHARED_SIZE_BYTES`` …, without the prefix of
        names in CUfunction_attribute."""
        key = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
        return int(checked(driver.cuFuncGetAttribute(key, self._function), f"querying {self.name}"))

    def allow_shared_memory(self, dynamic_bytes: int) -> None:
        """Allow launches to use this much dynamic shared memory; the default limit is 48 KiB."""
        key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(
            driver.cuFuncSetAttribute(self._function, key, dynamic_bytes),
            f"requesting {dynamic_bytes} bytes of shared memory for {self.name}",
        )

    def blocks_per_processor(self, threads: int, dynamic_bytes: int) -> int:
        """How many blocks of `threads` with this much dynamic shared memory a multiprocessor runs
        at a time."""
        return int(
            checked(
                driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    self._function, threads, dynamic_bytes
                ),
                f"querying the occupancy of {self.name}",
            )
        )

    def launch(
        self,
        blocks: int,
        threads: int,
        dynamic_bytes: int,
        stream: int,
        arguments: Sequence[Any],
        *,
        check: bool = True,
    ) -> None:
        """Launch on `stream` (a CUstream's address).

        Args:
            arguments: ctypes objects.
            check: False only for the kernel whose deliberate bug is an unchecked launch.

        Raises:
            CudaError: the driver rejected it.
        """
        addresses = [ctypes.addressof(item) for item in arguments]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        result = driver.cuLaunchKernel(
            self._function, blocks, 1, 1, threads, 1, 1, dynamic_bytes,
            driver.CUstream(stream), ctypes.addressof(table), 0,
        )  # fmt: skip
        if check:
            checked(result, f"launching {self.name}")


def macros_of(**values: int) -> tuple[tuple[str, int], ...]:
    """Macros in the form that :func:`compile_source` can cache."""
    return tuple(sorted(values.items()))
