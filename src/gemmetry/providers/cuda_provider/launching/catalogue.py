"""Finds the kernels of all families, and the one that a configuration belongs to.

Compiles every kernel in every configuration, and checks the machine code: no spills, no local
memory, the expected instructions, no note of the compiler that it is slow.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Target, TargetKind
from gemmetry.domain.errors import CompileError
from gemmetry.domain.files import write_whole
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.hardware.cuda_plans import Compilation, ResourceUsage, performance_notes, ptxas_usage
from gemmetry.providers import cuda_provider
from gemmetry.providers.cuda_provider.launching.kernel import (
    ARCHITECTURE,
    TARGET_ARCHITECTURE,
    CudaKernel,
)

LARGEST_TENSOR = 2**31 - 1
"""Elements of a tensor: kernels count in 32 bits."""

_PROVIDER = "provider"


@cache
def kernels() -> tuple[CudaKernel, ...]:
    """All kernels: those that are not on the ladder first, then its rungs, the highest first, which
    is the order in which ``default`` chooses."""
    found: list[CudaKernel] = []
    for module in pkgutil.iter_modules(cuda_provider.__path__):
        if module.ispkg or module.name == _PROVIDER:
            continue
        family = importlib.import_module(f"{cuda_provider.__name__}.{module.name}")
        found += getattr(family, "KERNELS", ())
    return tuple(sorted(found, key=lambda kernel: (kernel.rung is not None, -(kernel.rung or 0))))


def kernel_of(configuration: str) -> CudaKernel | None:
    """The kernel that a configuration's name belongs to; None if there is none."""
    key = configuration.partition("_")[0]
    return next((kernel for kernel in kernels() if kernel.key == key), None)


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if one of the kernels computes `operation` on `target`, else the reason."""
    if reason := _target_reason(target) or _size_reason(operation):
        return reason
    if operation.signature.kind is not OperationKind.MATMUL:
        return f"the CUDA kernels do matmul, not {operation.signature.kind}"
    reasons = [kernel.refusal(operation) for kernel in kernels()]
    return None if None in reasons else next(iter(reasons), "there are no CUDA kernels")


def choose(operation: Operation) -> Configuration | None:
    """The configuration of ``default``: the first one of the first kernel that computes
    `operation`; None if none does."""
    return next((one for kernel in kernels() for one in kernel.legal(operation)[:1]), None)


def worth_trying(operation: Operation) -> Iterator[Configuration]:
    """``default`` with its actual parameters, then every listed configuration that computes
    `operation`."""
    chosen = choose(operation)
    if chosen is None:
        return
    yield Configuration(DEFAULT_CONFIGURATION, chosen.parameters)
    for kernel in kernels():
        if kernel.is_listed:
            yield from kernel.legal(operation)


def is_hopper(target: Target) -> bool:
    """Whether a target runs the kernels."""
    architecture = target.architecture.rstrip("a")
    return target.kind is TargetKind.CUDA and architecture == TARGET_ARCHITECTURE


def _target_reason(target: Target) -> str | None:
    if is_hopper(target):
        return None
    return f"the CUDA kernels are for NVIDIA Hopper (cuda-{TARGET_ARCHITECTURE}), not {target}"


def _size_reason(operation: Operation) -> str | None:
    for spec in (*operation.inputs, operation.output):
        if spec.elements > LARGEST_TENSOR:
            sizes = "x".join(map(str, spec.shape))
            return f"{spec.role} ({sizes}) has more than {LARGEST_TENSOR} elements"
    return None


ENTRY = "gemm"
"""The entry that computes the product; launches before and after it have other names."""
_AT_ONCE = 16
"""Compilations of which the machine code is disassembled in one run of the tool."""

_PROCESSORS = 132
"""Multiprocessors that plans are made for; they do not change the machine code."""


@dataclass(slots=True)
class KernelVariant:
    """One compilation of a kernel, and where it is used."""

    kernel: CudaKernel
    compilation: Compilation
    configurations: list[str] = field(default_factory=list)
    dynamic_bytes: int = 0
    """The most dynamic shared memory of its launches."""

    @property
    def expected(self) -> tuple[str, ...]:
        """Beginnings of the instructions that it has to have: those of the kernel, but none where
        it is a launch that prepares or follows the product."""
        if self.compilation.entry != ENTRY:
            return ()
        exempt = self.kernel.exempt(self.compilation)
        return tuple(name for name in self.kernel.instructions if name not in exempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVariant:
    """A compiled variant."""

    variant: KernelVariant
    usage: ResourceUsage | None = None
    """With dynamic shared memory; None: it does not compile."""
    missing: tuple[str, ...] | None = None
    """Expected instructions that the machine code lacks; None: it was not disassembled."""
    unchecked: str = ""
    """Why it was not disassembled."""
    notes: tuple[str, ...] = ()
    """Lines of the compiler that report a kernel slower than its source."""
    error: str = ""
    """Why it does not compile."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the machine code; (): nothing."""
        if self.usage is None:
            return (self.error,)
        found = []
        if self.usage.spill_bytes:
            found.append(f"spills {self.usage.spill_bytes} bytes of registers")
        if self.usage.local_bytes:
            found.append(f"uses {self.usage.local_bytes} bytes of local memory")
        if self.missing:
            found.append(f"lacks {', '.join(self.missing)}")
        return (*found, *self.notes)


def variants_of(kernel: CudaKernel) -> list[KernelVariant]:
    """The distinct compilations of a kernel over the operations that its row names."""
    found: dict[Compilation, KernelVariant] = {}
    for name in kernel.checked:
        operation = parse_operation(name)
        for configuration in (kernel.everything or kernel.configurations)(operation):
            if kernel.why_not(operation, configuration) is not None:
                continue
            for launch in kernel.plan(operation, configuration, _PROCESSORS).launches:
                compilation = launch.compilation
                one = found.setdefault(compilation, KernelVariant(kernel, compilation))
                one.dynamic_bytes = max(one.dynamic_bytes, launch.grid.dynamic_bytes)
                if configuration.name not in one.configurations:
                    one.configurations.append(configuration.name)
    return list(found.values())


def check(
    variants: Iterable[KernelVariant], jobs: int, kept_in: Path | None = None
) -> Iterator[CheckedVariant]:
    """Compile and check variants with `jobs` threads, which compile in parallel, in their order.

    Args:
        kept_in: a folder with what earlier calls read from machine code. It is found again as long
            as source, compiler and disassembler are the same.

    Raises:
        CompileError: the compiler is missing.
    """
    from gemmetry.hardware.cuda_compiler import nvrtc_version

    nvrtc_version()
    every = list(variants)
    size = max(1, min(_AT_ONCE, len(every) // max(jobs, 1)))
    shares = [every[start : start + size] for start in range(0, len(every), size)]
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        for found in pool.map(partial(_check_some, kept_in), shares):
            yield from found


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read from machine code."""

    log: str = ""
    """What the compiler printed."""
    instructions: frozenset[str] = frozenset()
    unchecked: str = ""
    """Why it was not disassembled."""
    error: str = ""
    """Why it does not compile."""
    code: bytes | None = None
    """Of what was compiled just now."""


def _check_some(kept_in: Path | None, variants: Sequence[KernelVariant]) -> list[CheckedVariant]:
    """Compile some, and disassemble all of them at once."""
    found = [_read(kept_in, one) for one in variants]
    codes = {one: read.code for one, read in enumerate(found) if read.code is not None}
    expecting = [one for one in codes if variants[one].expected]
    for one, read in zip(expecting, _disassembled([codes[i] for i in expecting]), strict=True):
        found[one] = replace(found[one], instructions=read.instructions, unchecked=read.unchecked)
    for one in codes:
        _keep(kept_in, variants[one], found[one])
    return [_checked(*pair) for pair in zip(variants, found, strict=True)]


def _read(kept_in: Path | None, variant: KernelVariant) -> _Read:
    """What an earlier call kept, or the compiler's part of it."""
    from gemmetry.hardware import cuda_compiler

    try:
        file = _file(kept_in, variant)
        if file is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                known = json.loads(file.read_bytes())
                return _Read(str(known["log"]), frozenset(map(str, known["instructions"])))
        cubin = cuda_compiler.compile_kept(variant.compilation, ARCHITECTURE, None)
    except CompileError as error:
        return _Read(error=error.message)
    return _Read(cubin.log, code=cubin.code)


def _disassembled(codes: Sequence[bytes]) -> list[_Read]:
    from gemmetry.hardware import cuda_plans as cuda_tools

    try:
        return [_Read(instructions=names) for names in cuda_tools.instructions_of_each(codes)]
    except cuda_tools.NoDisassemblerError as error:
        return [_Read(unchecked=str(error)) for _ in codes]


def _keep(kept_in: Path | None, variant: KernelVariant, read: _Read) -> None:
    file = _file(kept_in, variant)
    if file is not None and not read.unchecked:
        content = {"log": read.log, "instructions": sorted(read.instructions)}
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(content).encode())


def _file(kept_in: Path | None, variant: KernelVariant) -> Path | None:
    """
    Raises:
        CompileError: the compiler is missing.
    """
    from gemmetry.hardware import cuda_compiler
    from gemmetry.hardware import cuda_plans as cuda_tools

    if kept_in is None:
        return None
    key = cuda_compiler.compilation_key(variant.compilation, ARCHITECTURE)
    return kept_in / f"{key}-{cuda_tools.disassembler_key() if variant.expected else 'log'}.json"


def _checked(variant: KernelVariant, read: _Read) -> CheckedVariant:
    compilation = variant.compilation
    if read.error:
        return CheckedVariant(variant=variant, error=read.error)
    usage = ptxas_usage(read.log).get(compilation.entry)
    if usage is None:
        error_text = f"the compiler does not report the resources of {compilation.entry}"
        return CheckedVariant(variant=variant, error=error_text)
    missing: tuple[str, ...] | None = tuple(
        wanted
        for wanted in variant.expected
        if not any(name.startswith(wanted) for name in read.instructions)
    )
    if read.unchecked:
        missing = None
    return CheckedVariant(
        variant=variant,
        usage=ResourceUsage(
            usage.registers,
            usage.spill_bytes,
            usage.local_bytes,
            usage.shared_bytes + variant.dynamic_bytes,
        ),
        missing=missing,
        unchecked=read.unchecked,
        notes=tuple(performance_notes(read.log)),
    )
