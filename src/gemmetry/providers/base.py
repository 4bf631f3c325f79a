"""Base class with defaults for everything that a provider need not decide.

A provider sets ``name`` and writes ``supports``, ``configurations``, ``build``, and ``available``
where more than :attr:`BaseProvider.requires` decides.

What the providers of this package declare of themselves, known without loading any.

Paths of the files that providers generate, and writing them.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from gemmetry import providers
from gemmetry.domain.contracts import (
    Buffer,
    Compiled,
    Device,
    Executable,
    ProviderTraits,
    Workspace,
)
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_target
from gemmetry.domain.errors import DispatchError, StorageError, UnsupportedError
from gemmetry.domain.files import write_whole
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.record import BuildFacts

if TYPE_CHECKING:
    from gemmetry.hardware.torch_device import TorchDevice

Requirement = tuple[str, str, str]
"""A module, the package that it belongs to, and the extra of gemmetry that installs it."""


def is_installed(module: str) -> bool:
    """Whether a module can be imported, found without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


class BaseProvider(ABC):
    """See :class:`gemmetry.domain.contracts.Provider` for the contract of each method.

    Constructing a provider must be cheap and import no heavy library: listings create one of each.
    """

    name: ClassVar[str]
    description: ClassVar[str] = ""
    """One line for ``gemmetry list providers``."""
    rebuilds_quickly: bool = True
    requires: ClassVar[Sequence[Requirement]] = ()
    """Packages that :meth:`missing` looks for."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Mapping[str, Any] = options or {}

    def missing(self) -> str | None:
        """Packages of :attr:`requires` that are not installed, and how to install them, or None."""
        rows = [row for row in self.requires if not is_installed(row[0])]
        if not rows:
            return None
        packages = " and ".join(package for _, package, _ in rows)
        extras = ",".join(dict.fromkeys(extra for _, _, extra in rows))
        verb = "is" if len(rows) == 1 else "are"
        return f"{packages} {verb} not installed; pip install 'gemmetry[{extras}]'"

    def available(self) -> str | None:
        return self.missing()

    @abstractmethod
    def supports(self, operation: Operation, target: Target) -> str | None: ...

    @abstractmethod
    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]: ...

    @abstractmethod
    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable: ...

    def search_space(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return self.configurations(operation, target)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        return next((c for c in self.configurations(operation, target) if c.name == name), None)

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        return None

    def targets(self) -> Sequence[Target]:
        return (Target(TargetKind.CPU),)

    def gpus(self) -> list[Target]:
        """The GPUs of torch, for providers that require it; none where it is missing."""
        if self.missing() is not None:
            return []
        from gemmetry.hardware.torch_device import gpu_targets

        return gpu_targets()

    def prepare(self, target: Target) -> None:
        return

    def compiles_ahead(self, target: Target) -> bool:
        return False

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        return ()

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        return [Compiled(dispatch=dispatch, facts=BuildFacts()) for dispatch in dispatches]

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        return None

    def versions(self) -> Mapping[str, str]:
        return {}

    def doctor_notes(self) -> Sequence[str]:
        return ()


class GpuProvider(BaseProvider):
    """Compiles kernels for GPUs, on machines without one too, and runs them on torch's devices.

    Such a provider also writes ``compile_one``.
    """

    @abstractmethod
    def compile_one(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts | None:
        """Facts from compiling one dispatch; None where nothing has to be compiled.

        Raises:
            DispatchError: the dispatch cannot be compiled.
        """

    def compiles_ahead(self, target: Target) -> bool:
        return target.is_gpu

    def prepare(self, target: Target) -> None:
        from gemmetry.hardware.torch_device import open_device

        open_device(target)

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        def one(dispatch: Dispatch) -> Compiled:
            try:
                facts = self.compile_one(dispatch, workspace)
            except DispatchError as error:
                return Compiled(dispatch=dispatch, error=error)
            return Compiled(dispatch=dispatch, facts=facts or BuildFacts())

        with ThreadPoolExecutor(max(workspace.jobs, 1)) as pool:
            return list(pool.map(one, dispatches))

    def require(self, dispatch: Dispatch) -> None:
        """
        Raises:
            UnsupportedError: the dispatch is not supported, or its device is not on this machine.
        """
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        require_device(dispatch)


class TorchLaunch:
    """An executable of one function of inputs and output, on memory and stream of torch."""

    def __init__(
        self,
        name: str,
        device: TorchDevice,
        facts: BuildFacts,
        launch: Callable[[Sequence[Buffer], Buffer], Buffer],
        *,
        writes_output: bool = True,
        workspace_bytes: int | None = 0,
        free: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            workspace_bytes: memory that launches write and that belongs to the executable; None:
                not known.
            free: frees what is not memory.
        """
        from gemmetry.hardware.torch_device import TORCH_ERRORS

        self.device: Device = device
        self.facts, self.writes_output = facts, writes_output
        self.workspace_bytes = workspace_bytes
        self._name, self._torch_device, self._errors = name, device, TORCH_ERRORS
        self._launch, self._free = launch, free

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        try:
            return self._launch(inputs, output)
        except self._errors as error:
            if "CUBLAS_STATUS_NOT_SUPPORTED" in str(error):
                raise UnsupportedError(
                    f"cuBLAS has no kernel for {self._name}: {str(error).splitlines()[0]}",
                    hint="Try another layout, or sizes that are multiples of 16.",
                ) from error
            raise self._torch_device.translate(error, f"running {self._name}") from error

    def close(self) -> None:
        self._free()
        del self._launch, self._free
        self._torch_device.release()


def require_device(dispatch: Dispatch) -> None:
    """
    Raises:
        UnsupportedError: the dispatch's device is not on this machine.
    """
    if dispatch.target.index is None:
        raise UnsupportedError(
            f"no {dispatch.target} device is here, so {dispatch.name} can only be compiled"
        )


SHARED_BYTES = {
    f"sm_{number}": kib * 1024
    for kib, numbers in {
        64: (75,), 163: (80, 87), 99: (86, 89, 120, 121), 227: (90, 100, 103),
    }.items()
    for number in numbers
}  # fmt: skip
"""Maximum shared memory of a block in bytes, static and dynamic (CUDA C++ Programming Guide,
technical specifications per compute capability)."""


def compute_capability(architecture: str) -> int:
    """``sm_90a`` -> 90; 0 for names of another form."""
    match = re.fullmatch(r"sm_(\d+)[a-z]?", architecture)
    return int(match[1]) if match else 0


_MATRIX_INSTRUCTIONS = {
    "tcgen05": "tcgen05.mma",
    "wgmma": "wgmma.mma_async",
    "mma.sync": "mma.sync",
    "mfma": "v_mfma",
    "wmma": "v_wmma",
}
"""Reported name -> text found in PTX or AMD assembly where the instruction is used."""


def matrix_instruction(assembly: str) -> str:
    """The matrix instruction in PTX or AMD assembly, ``none`` if there is none."""
    return next((name for name, text in _MATRIX_INSTRUCTIONS.items() if text in assembly), "none")


_SUFFIX = "_provider"

_ELSEWHERE = {"mutant": "gemmetry.selftest"}
"""Name -> package of a provider in a room of a higher level."""


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the providers that come with gemmetry."""
    modules = [module.name for module in pkgutil.iter_modules(providers.__path__)]
    here = [name.removesuffix(_SUFFIX) for name in modules if name.endswith(_SUFFIX)]
    return tuple(sorted([*here, *_ELSEWHERE]))


def builtin_module(name: str) -> ModuleType:
    """The module or package of a provider that comes with gemmetry."""
    return importlib.import_module(_ELSEWHERE.get(name, f"{providers.__name__}.{name}{_SUFFIX}"))


@cache
def traits_of(name: str) -> ProviderTraits:
    """The traits of a provider, without loading it; providers of other packages, and unknown ones,
    have the default traits."""
    if name not in builtin_names():
        return ProviderTraits()
    return cast(ProviderTraits, getattr(builtin_module(name), "TRAITS", ProviderTraits()))


def baseline_names(names: Iterable[str]) -> list[str]:
    """Names of vendor libraries among `names`, the best baseline first."""
    ranks = {name: traits_of(name).baseline_rank for name in names}
    ranked = [(rank, name) for name, rank in ranks.items() if rank is not None]
    return [name for _, name in sorted(ranked)]


def best_baseline() -> str:
    """``provider:configuration`` of the fastest of a vendor library's algorithms."""
    return next(
        f"{name}:{best}" for name in builtin_names() if (best := traits_of(name).best_configuration)
    )


def kernel_provider() -> str:
    """The provider that runs the functions of ``--kernel``."""
    return next(name for name in builtin_names() if traits_of(name).takes_kernels)


def recording_provider() -> str:
    """The provider whose dispatches ``trace record`` records where none is named."""
    return next(name for name in builtin_names() if traits_of(name).records_traces)


def legacy_provider() -> str:
    """The provider that the dispatch profiler's own set of dispatches is for."""
    return next(name for name in builtin_names() if traits_of(name).is_dispatch_profilers)


def support_places() -> list[tuple[str, str]]:
    """The (provider, target) pairs that the support matrix shows: by kind of device, vendor
    libraries first."""
    libraries = baseline_names(builtin_names())
    names = [*libraries, *(name for name in builtin_names() if name not in libraries)]
    places = [(name, target) for name in names for target in traits_of(name).support_targets]
    return sorted(places, key=lambda place: [*TargetKind].index(parse_target(place[1]).kind))


def output_folder(generated: Path, dispatch: Dispatch) -> Path:
    """``<generated>/<provider>/<kind>/<operation>``."""
    operation = dispatch.operation
    return generated / dispatch.provider / str(operation.kind) / operation_name(operation)


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path`, creating its folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return path


def written_files(
    dispatch: Dispatch, generated: Path, files: Mapping[str, tuple[str, bytes]]
) -> dict[str, Any]:
    """Write files about a dispatch into its folder below `generated`.

    Args:
        files: the fact of :class:`BuildFacts` that names each file -> its name and content.

    Returns:
        Each fact -> the path relative to the experiment's folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    folder = output_folder(generated, dispatch)
    return {
        fact: str(write_atomically(folder / name, data).relative_to(generated.parent))
        for fact, (name, data) in files.items()
    }


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Exclusive access among the processes that change files in `folder`, which is created.

    Raises:
        StorageError: the folder cannot be written.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn errors of the file system, and of damaged files read there, into StorageError."""
    try:
        yield
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else None
        raise StorageError(
            f"cannot write {path}: {what or error}",
            hint="Free some space or choose another folder with --generated-dir; the same command "
            "continues from there.",
        ) from error
