"""The provider: supported operations, configurations, compiling ahead and building."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import CompileError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_plans import KernelLaunch, LaunchPlan
from gemmetry.providers.base import GpuProvider, Requirement, output_folder, write_atomically
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import PROCESSORS, TARGET_ARCHITECTURE, sources_of

if TYPE_CHECKING:
    from gemmetry.providers.cuda_provider.executable import CompiledPlan

_PROPOSALS = 6
"""Enough at 32 shapes on an H100: wherever a kernel beats what cuBLASLt proposes, one of the
first six is within 0.2 % of the fastest (docs/dispatcher.md)."""


class CudaProvider(GpuProvider):
    """Options: ``bounded_waits`` (true: a kernel that waits for two seconds for its own threads or
    copies ends with an error instead of hanging, which shows whether that is why it hangs)."""

    name: ClassVar[str] = "cuda"
    description: ClassVar[str] = "this project's own CUDA C++ kernels for Hopper, a ladder of them"

    requires: ClassVar[Sequence[Requirement]] = (
        ("cuda.bindings", "cuda-bindings", "cuda"),
        ("torch", "torch", "torch"),
    )

    def doctor_notes(self) -> Sequence[str]:
        if self.available() is not None:
            return ()
        from gemmetry.hardware.cuda_compiler import nvrtc_version

        notes = []
        try:
            nvrtc_version()
        except CompileError as error:
            notes.append(f"{error.message}. {error.hint}")
        found = [target for target in self.gpus() if target.kind is TargetKind.CUDA]
        if found and not any(map(catalogue.is_hopper, found)):
            names = ", ".join(f"{target.device} is {target.architecture}" for target in found)
            notes.append(f"Its kernels run on Hopper (sm_90) only: {names}.")
        return notes

    def targets(self) -> Sequence[Target]:
        cross = Target(TargetKind.CUDA, TARGET_ARCHITECTURE, None)
        return [*filter(catalogue.is_hopper, self.gpus()), cross]

    def supports(self, operation: Operation, target: Target) -> str | None:
        return catalogue.reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return catalogue.worth_trying(operation)

    def proposals(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """The first configurations of the list, which begins with the best ones."""
        listed = catalogue.worth_trying(operation)
        return islice((one for one in listed if one.name != DEFAULT_CONFIGURATION), _PROPOSALS)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        if name == DEFAULT_CONFIGURATION:
            return next(catalogue.worth_trying(operation), None)
        kernel = catalogue.kernel_of(name)
        return kernel.configuration(name, operation) if kernel else None

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write the sources and headers of the dispatches."""
        written: dict[Path, bytes] = {}
        for dispatch in dispatches:
            folder = output_folder(workspace.generated, dispatch)
            plan, _ = _prepared(dispatch, PROCESSORS)
            written |= {folder / name: data for name, data in sources_of(plan).items()}
        return [write_atomically(path, data) for path, data in written.items()]

    def compile_one(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts:
        return self._compile(dispatch, workspace, PROCESSORS)[1].facts

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        self.require(dispatch)
        from gemmetry.hardware.torch_device import open_device
        from gemmetry.providers.cuda_provider.executable import load

        device = open_device(dispatch.target)
        kept = replace(workspace, force=False)
        return load(dispatch, *self._compile(dispatch, kept, device.multiprocessors), device)

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        kernel = catalogue.kernel_of(dispatch.configuration.name)
        predict = kernel.seconds_per_launch if kernel else None
        return predict(dispatch.operation) if predict else None

    def versions(self) -> Mapping[str, str]:
        if self.available() is not None:
            return {}
        from importlib.metadata import version

        from gemmetry.hardware.cuda_compiler import nvrtc_version

        found = {"cuda-bindings": version("cuda-bindings")}
        with suppress(CompileError):
            found["nvrtc"] = ".".join(map(str, nvrtc_version()))
        return found

    def _compile(
        self, dispatch: Dispatch, workspace: Workspace, processors: int
    ) -> tuple[LaunchPlan, CompiledPlan]:
        from gemmetry.providers.cuda_provider.executable import compile_plan

        plan, chosen = _prepared(dispatch, processors)
        if self.options.get("bounded_waits", False):
            plan = _with_bounded_waits(plan)
        compiled = compile_plan(plan, dispatch, workspace)
        if dispatch.configuration.name == DEFAULT_CONFIGURATION:
            facts = replace(compiled.facts, default_configuration=chosen.name)
            compiled = replace(compiled, facts=facts)
        return plan, compiled


def _prepared(dispatch: Dispatch, processors: int) -> tuple[LaunchPlan, Configuration]:
    """The launches of a dispatch, and its configuration (for ``default``, the chosen one).

    Raises:
        UnsupportedError: the configuration does not compute the operation.
    """
    operation, chosen = dispatch.operation, dispatch.configuration
    if reason := catalogue.reason_against(operation, dispatch.target):
        raise UnsupportedError(f"{dispatch}: {reason}")
    if chosen.name == DEFAULT_CONFIGURATION:
        chosen = catalogue.choose(operation) or chosen
    kernel = catalogue.kernel_of(chosen.name)
    if kernel is None:
        raise UnsupportedError(f"{dispatch}: no CUDA kernel has a configuration {chosen.name}")
    if reason := kernel.why_not(operation, chosen):
        raise UnsupportedError(f"{dispatch}: {reason}")
    return kernel.plan(operation, chosen, processors), chosen


def _with_bounded_waits(plan: LaunchPlan) -> LaunchPlan:
    """`plan` with kernels whose waits for mbarriers have a limit (ptx.cuh)."""

    def bounded(launch: KernelLaunch) -> KernelLaunch:
        macros = (*launch.compilation.macros, ("BOUNDED_WAITS", 1))
        return replace(launch, compilation=replace(launch.compilation, macros=macros))

    return replace(plan, launches=tuple(map(bounded, plan.launches)))


PROVIDER = CudaProvider
