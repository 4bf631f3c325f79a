"""Compiles every kernel in every configuration, and checks the machine code: no spills, no local
memory, the expected instructions, no note of the compiler that it is slow."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gemmetry.devices.cuda_plans import Compilation
from gemmetry.devices.ptxas import ResourceUsage, performance_notes, ptxas_usage
from gemmetry.domain.errors import CompileError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.cuda_provider.launching.kernel import ARCHITECTURE, CudaKernel

ENTRY = "gemm"
"""The entry that computes the product; launches before and after it have other names."""
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


def check(variants: Iterable[KernelVariant], jobs: int) -> list[CheckedVariant]:
    """Compile and check variants with `jobs` threads, which compile in parallel.

    Raises:
        CompileError: the compiler is missing.
    """
    from gemmetry.devices.cuda_compiler import nvrtc_version

    nvrtc_version()
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        return list(pool.map(_check_one, variants))


def _check_one(variant: KernelVariant) -> CheckedVariant:
    from gemmetry.devices.cuda_compiler import compile_kept
    from gemmetry.devices.cuda_tools import NoDisassemblerError, instructions_of

    compilation = variant.compilation
    try:
        cubin = compile_kept(compilation, ARCHITECTURE, None)
    except CompileError as error:
        return CheckedVariant(variant=variant, error=error.message)
    usage = ptxas_usage(cubin.log).get(compilation.entry)
    if usage is None:
        error_text = f"the compiler does not report the resources of {compilation.entry}"
        return CheckedVariant(variant=variant, error=error_text)
    missing: tuple[str, ...] | None = ()
    unchecked = ""
    if variant.expected:
        try:
            names = instructions_of(cubin.code)
        except NoDisassemblerError as error:
            missing, unchecked = None, str(error)
        else:
            missing = tuple(
                wanted
                for wanted in variant.expected
                if not any(name.startswith(wanted) for name in names)
            )
    return CheckedVariant(
        variant=variant,
        usage=ResourceUsage(
            usage.registers,
            usage.spill_bytes,
            usage.local_bytes,
            usage.shared_bytes + variant.dynamic_bytes,
        ),
        missing=missing,
        unchecked=unchecked,
        notes=tuple(performance_notes(cubin.log)),
    )
