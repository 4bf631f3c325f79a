"""One call of a user's Python function on logical views of the buffers.

A user's own kernel, straight from a file: any Python function on numpy or torch arrays, or a
kernel with a manifest, in CUDA C++ or compiled elsewhere.

How to write one: docs/my-kernel.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from gemmetry.domain.contracts import Buffer, Device, Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Parameter, Target, TargetKind
from gemmetry.domain.errors import (
    GemmetryError,
    LaunchError,
    OutOfMemoryError,
    RequestError,
    UnknownNameError,
    UnsupportedError,
    WrongResultError,
)
from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
    TensorSpec,
)
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostDevice, blas_threads, set_blas_threads
from gemmetry.providers.base import GpuProvider, require_device
from gemmetry.providers.user_provider.cuda_kernel import compile_kernel, why_not
from gemmetry.providers.user_provider.cuda_manifest import (
    MACHINE_CODE,
    SOURCE,
    CudaManifest,
    kernels_of,
    load_manifest,
)
from gemmetry.providers.user_provider.kernel import (
    UserKernel,
    call_user_code,
    describe_error,
    error_line,
    inspect_kernels,
    load_kernel,
)


class UserExecutable:
    """One call of the user's function on logical views of the buffers."""

    def __init__(
        self,
        kernel: UserKernel,
        operation: Operation,
        configuration: Mapping[str, Any],
        device: Device,
    ) -> None:
        self.device = device
        self.facts = BuildFacts(
            notes=(f"{kernel} with {kernel.arrays} arrays",), declared=kernel.declared
        )
        assert kernel.function is not None, "loaded in this process"
        self.writes_output = "out" in kernel.parameters
        self._kernel, self._function, self._operation = kernel, kernel.function, operation
        self._inputs, self._result = operation.inputs, operation.output
        self._keywords = {**scalar_keywords(operation), **configuration}

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Call the function.

        Raises:
            LaunchError: the function raised, or returned something that is not C.
            OutOfMemoryError: the function ran out of memory.
        """
        views = [_logical(array, spec) for array, spec in zip(inputs, self._inputs, strict=True)]
        extra = {spec.role: v for spec, v in zip(self._inputs[2:], views[2:], strict=True)}
        keywords = {**self._keywords, **extra}
        target = _logical(output, self._result)
        if "out_dtype" in self._kernel.parameters:
            keywords["out_dtype"] = output.dtype
        if self.writes_output:
            keywords["out"] = target
        result = call_user_code(self._function, self._explain, views[0], views[1], **keywords)
        if self.writes_output:
            if result is not None and result is not target:
                self._check_is_output(result, target)
            return output
        return self._take(result, inputs, output, target)

    def close(self) -> None:
        """Nothing is held between launches."""

    def _take(
        self, result: Any, inputs: Sequence[Buffer], output: Buffer, target: Buffer
    ) -> Buffer:
        """The returned array in storage layout; a copy only if its layout differs."""
        is_alike = type(result) is type(output) and result.shape == target.shape
        if not is_alike or result.dtype != output.dtype:
            raise self._bad_result(f"returned {_describe(result)}")
        if any(_share_memory(result, array) for array in inputs):
            raise self._bad_result("returned a view of one of its inputs")
        if getattr(result, "device", None) != getattr(output, "device", None):
            raise self._bad_result(f"returned a result on the device {result.device}")
        stored = _logical(result, self._result)
        if isinstance(stored, np.ndarray):
            return np.ascontiguousarray(stored)
        return stored.contiguous()

    def _check_is_output(self, result: Any, target: Buffer) -> None:
        same = type(result) is type(target) and result.shape == target.shape
        if not (same and _share_memory(result, target)):
            raise WrongResultError(
                f"{self._kernel} takes out= but returned {_describe(result)}",
                hint="Write C into out and return nothing, or remove the parameter out.",
            )

    def _bad_result(self, what: str) -> WrongResultError:
        spec = self._result
        return WrongResultError(
            f"{self._kernel} {what} where {spec.dtype} of shape {spec.shape} is expected",
            hint=f"Return a new {self._kernel.arrays} array, or take out= and write into it.",
        )

    def _explain(self, error: BaseException) -> GemmetryError:
        path = self._kernel.path
        described = describe_error(error, path)
        translate = getattr(self.device, "translate", None)
        if translate is not None and isinstance(error, RuntimeError | MemoryError):
            # Only the torch device can distinguish a lost or full GPU from an ordinary error.
            explained: GemmetryError = translate(
                error, f"running {self._kernel}{error_line(error, path)}"
            )
            return explained
        if isinstance(error, MemoryError):
            return OutOfMemoryError(
                f"{self._kernel} ran out of memory: {described}", hint="Choose a smaller shape."
            )
        return LaunchError(
            f"{self._kernel} raised {described}", hint=f"It was called for {self._operation}."
        )


def scalar_keywords(operation: Operation) -> dict[str, Any]:
    """Keyword arguments passed to a function in addition to the tensors: ``alpha`` and ``beta``
    where they are not 1 and 0, ``slices`` of a split-k, ``stride`` and ``padding`` (height, width)
    of a convolution, and ``epilogue`` (names in order) where steps other than additions are
    fused."""
    s, shape = operation.signature, operation.shape
    keywords: dict[str, Any] = {}
    if s.alpha != 1:
        keywords["alpha"] = s.alpha
    if s.beta != 0:
        keywords["beta"] = s.beta
    if s.split_k_slices > 1:
        keywords["slices"] = s.split_k_slices
    if isinstance(shape, Conv2dShape):
        keywords["stride"] = (shape.stride_h, shape.stride_w)
        keywords["padding"] = (shape.pad_h, shape.pad_w)
    if not _ADDITIONS.issuperset(s.epilogue):
        keywords["epilogue"] = tuple(map(str, s.epilogue))
    return keywords


_ADDITIONS = {EpilogueStep.BIAS, EpilogueStep.RESIDUAL}
"""Steps that commute, so that a function does not need a list of steps in order."""


def _logical(array: Buffer, spec: TensorSpec) -> Buffer:
    """A numpy or torch array as ``spec.shape``; a column-major one becomes a strided view."""
    return array.swapaxes(-1, -2) if spec.layout is Layout.COLUMN else array


def _share_memory(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return np.may_share_memory(first, second)
    return bool(
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and first.numel() > 0
    )


def _describe(result: Any) -> str:
    if hasattr(result, "shape") and hasattr(result, "dtype"):
        kind = f"{type(result).__module__.partition('.')[0]}.{type(result).__name__}"
        return f"a {kind} of {result.dtype}, shape {tuple(result.shape)}"
    return "None" if result is None else f"a {type(result).__name__}"


_CROSS_COMPILED = ("sm_80", "sm_90", "sm_100")
"""Architectures for which CUDA C++ is compiled on machines without such a GPU, where listed; any
other one that NVRTC has can be requested with ``--device``."""


class UserProvider(GpuProvider):
    """Options:

    ``kernel``: ``file.py:function``, ``file.cu:kernel`` or ``file.cubin:kernel``, a file with a
    manifest or a folder of machine code for all of their kernels, or a list of several;
    ``configurations``: a list of keyword values or macros, else the module's ``CONFIGURATIONS`` or
    the manifest's;
    ``arrays``: ``numpy`` or ``torch``, where the module does not specify it;
    ``threads``: CPU threads of BLAS or torch (0 or absent: their own choice).
    """

    name: ClassVar[str] = "user"
    description: ClassVar[str] = "your own Python function or CUDA kernel, given with --kernel"

    def available(self) -> str | None:
        if not self._kernel_texts():
            return "no kernel was given: add --kernel file.py:function"
        return None

    def supports(self, operation: Operation, target: Target) -> str | None:
        refusals = []
        for _, _, refusal in self._refusals(operation, target):
            if refusal is None:
                return None
            refusals.append(refusal)
        return refusals[0]

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return [
            Configuration(name, values)
            for name, values, refusal in self._refusals(operation, target)
            if refusal is None
        ]

    def _refusals(
        self, operation: Operation, target: Target
    ) -> Iterator[tuple[str, Mapping[str, Parameter], str | None]]:
        """Each configuration of each kernel, and why it does not compute the operation."""
        for name, kernel in _kernel_of(self._kernels).items():
            refusal: str | None = _NOT_HERE
            if target.index is not None:
                refusal = _refusal(kernel, operation.signature, target.kind)
            yield name, kernel.configurations[name], refusal
        for name, manifest in _kernel_of(self._cuda_kernels).items():
            values = manifest.configurations[name]
            yield name, values, why_not(manifest, operation, values, target)

    def targets(self) -> Sequence[Target]:
        found = [Target(TargetKind.CPU)] if self._kernels else []
        uses_torch = any(kernel.arrays == "torch" for kernel in self._kernels)
        if uses_torch or (self._cuda_kernels and _version_of("torch") is not None):
            from gemmetry.hardware.torch_device import gpu_targets

            found += [t for t in gpu_targets() if uses_torch or t.kind is TargetKind.CUDA]
        if self._cuda_kernels:
            found += [Target(TargetKind.CUDA, name, None) for name in _CROSS_COMPILED]
        return found

    def compiles_ahead(self, target: Target) -> bool:
        return target.kind is TargetKind.CUDA and bool(self._cuda_kernels)

    def prepare(self, target: Target) -> None:
        """Nothing: some kernels need no torch."""

    def compile_one(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts | None:
        """Compile the dispatch of a CUDA kernel; that of a Python function needs nothing."""
        kernel = _kernel_of(self._cuda_kernels).get(dispatch.configuration.name)
        if kernel is None:
            return None
        return compile_kernel(kernel, dispatch, workspace)[1].facts

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        name = dispatch.configuration.name
        cuda_kernel = _kernel_of(self._cuda_kernels).get(name)
        if cuda_kernel is not None:
            require_device(dispatch)
            kept = replace(workspace, force=False)
            plan, compiled = compile_kernel(cuda_kernel, dispatch, kept)
            from gemmetry.hardware.torch_device import open_device
            from gemmetry.providers.cuda_provider.executable import load

            return load(dispatch, plan, compiled, open_device(dispatch.target))
        if dispatch.target.index is None:
            raise UnsupportedError(f"{dispatch}: {_NOT_HERE}")
        known = _kernel_of(self._loaded)
        if name not in known:
            every = {**known, **_kernel_of(self._cuda_kernels)}
            raise UnknownNameError("configuration", name, every)
        kernel = known[name]
        if reason := _refusal(kernel, dispatch.operation.signature, dispatch.target.kind):
            raise UnsupportedError(f"{dispatch}: {reason}")
        device = self._device(kernel, dispatch.target)
        return UserExecutable(kernel, dispatch.operation, kernel.configurations[name], device)

    def versions(self) -> Mapping[str, str]:
        """The digest of each kernel's file, and the libraries that it uses."""
        kernels: list[UserKernel | CudaManifest] = [*self._kernels, *self._cuda_kernels]
        found = {f"kernel {kernel}": kernel.digest for kernel in kernels}
        if any(kernel.arrays == "torch" for kernel in self._kernels):
            import torch

            found["torch"] = str(torch.__version__)
        if self._cuda_kernels and (nvrtc := _version_of("nvidia-cuda-nvrtc")):
            found["nvrtc"] = nvrtc
        return {**found, "numpy": np.__version__}

    def _kernel_texts(self) -> list[str]:
        given = self.options.get("kernel") or []
        return [given] if isinstance(given, str) else [str(text) for text in given]

    @cached_property
    def _given_texts(self) -> list[str]:
        """The kernels, each as ``file:function``."""
        texts = self._kernel_texts()
        if not texts:
            raise RequestError(
                "the provider user has no kernel", hint="Add --kernel file.py:function."
            )
        found: list[str] = []
        for text in texts:
            is_path = Path(text).is_dir() or Path(text).is_file()
            found += kernels_of(Path(text)) if is_path else [text]
        return found

    def _texts(self, *, cuda: bool) -> list[str]:
        """The given CUDA kernels, which have a manifest, or the others."""
        return [
            text
            for text in self._given_texts
            if (Path(text.rpartition(":")[0]).suffix in (SOURCE, MACHINE_CODE)) == cuda
        ]

    @property
    def _naming(self) -> dict[str, Any]:
        """Configurations, and whether their names begin with the kernel's."""
        configurations = self.options.get("configurations")
        return {"configurations": configurations, "prefix": len(self._given_texts) > 1}

    @cached_property
    def _kernels(self) -> list[UserKernel]:
        """Information for planning, from another process, which may crash or hang on import."""
        texts = self._texts(cuda=False)
        arrays = self.options.get("arrays")
        return inspect_kernels(texts, arrays=arrays, **self._naming) if texts else []

    @cached_property
    def _cuda_kernels(self) -> list[CudaManifest]:
        return [load_manifest(text, **self._naming) for text in self._texts(cuda=True)]

    @cached_property
    def _loaded(self) -> list[UserKernel]:
        """The kernels for launches, imported into this process, which is a worker."""
        arrays = self.options.get("arrays")
        texts = self._texts(cuda=False)
        return [load_kernel(text, arrays=arrays, **self._naming) for text in texts]

    def _device(self, kernel: UserKernel, target: Target) -> Device:
        threads = int(self.options.get("threads", 0))
        if kernel.arrays == "numpy":
            if threads and blas_threads() != threads:
                set_blas_threads(threads)
            return HostDevice()
        from gemmetry.hardware.torch_device import open_device

        return open_device(target, threads=threads)


_NOT_HERE = "your own kernel runs only on a device of this machine; it is not cross-compiled"
_AnyKernel = TypeVar("_AnyKernel", bound=UserKernel | CudaManifest)


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _kernel_of(kernels: Iterable[_AnyKernel]) -> dict[str, _AnyKernel]:
    """Configuration's name -> the kernel that it configures."""
    found: dict[str, _AnyKernel] = {}
    for kernel in kernels:
        for name in kernel.configurations:
            if name in found:
                raise RequestError(
                    f"{found[name]} and {kernel} both have a configuration called {name}",
                    hint="Give the functions different names.",
                )
            found[name] = kernel
    return found


@lru_cache(maxsize=4096)
def _refusal(kernel: UserKernel, signature: Signature, kind: TargetKind) -> str | None:
    if kernel.arrays == "numpy" and kind is not TargetKind.CPU:
        return f"{kernel} takes numpy arrays, which live on the CPU"
    if kind not in (TargetKind.CPU, TargetKind.CUDA, TargetKind.HIP):
        return f"torch has no device {kind}"
    # The names do not depend on the shape.
    smallest = Operation(signature, MatmulShape(1, 1, signature.split_k_slices))
    if signature.kind is OperationKind.CONV2D:
        smallest = Operation(signature, Conv2dShape(1, 1, 1, 1, 1, 1, 1))
    roles = (spec.role for spec in smallest.inputs[2:])
    return kernel.refusal([*scalar_keywords(smallest), *roles])


PROVIDER = UserProvider
