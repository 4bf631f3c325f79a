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
from typing import TYPE_CHECKING

from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Target,
    TargetKind,
    parse_operation,
)
from gemmetry.domain.errors import CompileError
from gemmetry.domain.files import write_whole
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.hardware import cuda_plans as cuda_tools
from gemmetry.hardware.cuda_plans import (
    Compilation,
    NoDisassemblerError,
    ResourceUsage,
    performance_notes,
    ptxas_usage,
)
from gemmetry.providers import cuda_provider
from gemmetry.providers.cuda_provider.kernel import (
    ARCHITECTURE,
    PROCESSORS,
    TARGET_ARCHITECTURE,
    CudaKernel,
)

if TYPE_CHECKING:
    from gemmetry.hardware.cuda_compiler import Cubin

LARGEST_TENSOR = 2**31 - 1
"""Elements of a tensor: kernels count in 32 bits."""

_OTHERS = {"provider", "catalogue", "kernel", "executable"}
"""Modules of the folder that hold no family of kernels."""


@cache
def kernels() -> tuple[CudaKernel, ...]:
    """All kernels: those that are not on the ladder first, then its rungs, the highest first, which
    is the order in which ``default`` chooses."""
    found: list[CudaKernel] = []
    for module in pkgutil.iter_modules(cuda_provider.__path__):
        if module.name not in _OTHERS:
            family = importlib.import_module(f"{cuda_provider.__name__}.{module.name}")
            found += getattr(family, "KERNELS", ())
    return tuple(sorted(found, key=lambda kernel: (kernel.rung is not None, -(kernel.rung or 0))))


def kernel_of(configuration: str) -> CudaKernel | None:
    """The kernel that a configuration's name belongs to; None if there is none."""
    key = configuration.partition("_")[0]
    return next((kernel for kernel in kernels() if kernel.key == key), None)


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if one of the kernels computes `operation` on `target`, else the reason."""
    if not is_hopper(target):
        return f"the CUDA kernels are for NVIDIA Hopper (cuda-{TARGET_ARCHITECTURE}), not {target}"
    for spec in (*operation.inputs, operation.output):
        if spec.elements > LARGEST_TENSOR:
            sizes = "x".join(map(str, spec.shape))
            return f"{spec.role} ({sizes}) has more than {LARGEST_TENSOR} elements"
    if operation.signature.kind is not OperationKind.MATMUL:
        return f"the CUDA kernels do matmul, not {operation.signature.kind}"
    reasons = [kernel.refusal(operation) for kernel in kernels()]
    return None if None in reasons else next(iter(reasons), "there are no CUDA kernels")


def choose(operation: Operation) -> Configuration | None:
    """The configuration of ``default``: the first one of the first kernel that computes
    `operation`; None if none does."""
    return next((one for kernel in kernels() for one in kernel.legal(operation)[:1]), None)


_PROPOSED = 1
"""Configurations that take part next to ``default`` where none are requested."""


def worth_trying(operation: Operation) -> Iterator[Configuration]:
    """``default`` with its actual parameters, then every listed configuration that computes
    `operation`."""
    chosen = choose(operation)
    if chosen is None:
        return
    yield Configuration(DEFAULT_CONFIGURATION, chosen.parameters)
    listed = [one for kernel in kernels() if kernel.is_listed for one in kernel.legal(operation)]
    others = [one.name for one in listed if one.name != chosen.name]
    for one in listed:  # the best ones first, of which ``default`` is one
        yield replace(one, is_proposed=one.name in others[:_PROPOSED])


def is_hopper(target: Target) -> bool:
    """Whether a target runs the kernels."""
    architecture = target.architecture.rstrip("a")
    return target.kind is TargetKind.CUDA and architecture == TARGET_ARCHITECTURE


ENTRY = "gemm"
"""The entry that computes the product; launches before and after it have other names."""
_AT_ONCE = 16
"""Compilations of which the machine code is disassembled in one run of the tool."""


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
        spilled, local, missing = self.usage.spill_bytes, self.usage.local_bytes, self.missing
        found = (
            f"spills {spilled} bytes of registers" if spilled else "",
            f"uses {local} bytes of local memory" if local else "",
            f"lacks {', '.join(missing)}" if missing else "",
        )
        return (*filter(None, found), *self.notes)


def variants_of(kernel: CudaKernel) -> list[KernelVariant]:
    """The distinct compilations of a kernel over the operations that its row names."""
    found: dict[Compilation, KernelVariant] = {}
    for name in kernel.checked:
        operation = parse_operation(name)
        for configuration in (kernel.everything or kernel.configurations)(operation):
            if kernel.why_not(operation, configuration) is not None:
                continue
            for launch in kernel.plan(operation, configuration, PROCESSORS).launches:
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


def _check_some(kept_in: Path | None, variants: Sequence[KernelVariant]) -> list[CheckedVariant]:
    """Compile some, and disassemble all of them at once."""
    from gemmetry.hardware.cuda_compiler import compile_kept

    found: dict[int, CheckedVariant] = {}
    compiled: dict[int, Cubin] = {}
    for number, variant in enumerate(variants):
        try:
            known = _kept(kept_in, variant)
            if known is None:
                compiled[number] = compile_kept(variant.compilation, ARCHITECTURE, None)
            else:
                found[number] = _checked(variant, *known)
        except CompileError as error:
            found[number] = CheckedVariant(variant=variant, error=error.message)
    codes = {number: one.code for number, one in compiled.items() if variants[number].expected}
    names: dict[int, frozenset[str]] = {}
    unchecked = ""
    try:
        names = dict(zip(codes, cuda_tools.instructions_of_each([*codes.values()]), strict=True))
    except NoDisassemblerError as error:
        unchecked = str(error)
    for number, cubin in compiled.items():
        variant, own = variants[number], names.get(number, frozenset())
        why = unchecked if variant.expected else ""
        if not why:
            _keep(kept_in, variant, cubin.log, own)
        found[number] = _checked(variant, cubin.log, own, why)
    return [found[number] for number in range(len(variants))]


def _file(kept_in: Path, variant: KernelVariant) -> Path:
    """
    Raises:
        CompileError: the compiler is missing.
    """
    from gemmetry.hardware.cuda_compiler import compilation_key

    key = compilation_key(variant.compilation, ARCHITECTURE)
    return kept_in / f"{key}-{cuda_tools.disassembler_key() if variant.expected else 'log'}.json"


def _kept(kept_in: Path | None, variant: KernelVariant) -> tuple[str, frozenset[str]] | None:
    """What an earlier call read: the compiler's output, and the names of instructions."""
    if kept_in is None:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(_file(kept_in, variant).read_bytes())
        return str(known["log"]), frozenset(map(str, known["instructions"]))
    return None


def _keep(
    kept_in: Path | None, variant: KernelVariant, log: str, instructions: frozenset[str]
) -> None:
    if kept_in is not None:
        with contextlib.suppress(OSError):
            kept_in.mkdir(parents=True, exist_ok=True)
            content = {"log": log, "instructions": sorted(instructions)}
            write_whole(_file(kept_in, variant), json.dumps(content).encode())


def _checked(
    variant: KernelVariant, log: str, instructions: frozenset[str], unchecked: str = ""
) -> CheckedVariant:
    entry = variant.compilation.entry
    usage = ptxas_usage(log).get(entry)
    if usage is None:
        error = f"the compiler does not report the resources of {entry}"
        return CheckedVariant(variant=variant, error=error)
    missing = (
        wanted
        for wanted in variant.expected
        if not any(name.startswith(wanted) for name in instructions)
    )
    return CheckedVariant(
        variant=variant,
        usage=replace(usage, shared_bytes=usage.shared_bytes + variant.dynamic_bytes),
        missing=None if unchecked else tuple(missing),
        unchecked=unchecked,
        notes=tuple(performance_notes(log)),
    )
