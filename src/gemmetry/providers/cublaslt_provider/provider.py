"""What cuBLASLt computes, decided from the operation and the target alone.

The rules are those of the cuBLAS documentation, ``cublasLtMatmul``: its tables of data types and
epilogues, and "Narrow Precision Data Types Usage". For what they leave open, the library answers
when a dispatch is built.

The provider: what it supports, its configurations, and building them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import DispatchError, RequestError, UnsupportedError, alternatives
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    S8,
    TF32,
    DType,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    default_accumulator,
)
from gemmetry.providers.base import BaseProvider, Requirement, compute_capability
from gemmetry.providers.cublaslt_provider import TRAITS

_RESULTS: dict[DType, tuple[DType, ...]] = {
    F64: (F64,),
    F32: (F32,),
    TF32: (F32,),
    F16: (F16, F32),
    BF16: (BF16, F32),
}
_FIRST_BF16_CUDA = 80
_FIRST_FP8_CUDA = 89
"""Ampere has tf32 and bf16, Ada fp8 (PTX ISA, ``mma``)."""
_FINE_SCALES_CUDA = 90
"""Factors of lines and of 128-element blocks are those of compute capability 9.0 alone."""
_BLOCK = 128
_FP8_BYTES = 16
"""Rows and K of fp8 products are multiples of 16 bytes."""
_INT8_ELEMENTS = 4
"""Rows and K of int8 products are multiples of 4."""
_FACTORS_ALIGNED = 4
"""Columns of 128x128 factors, contiguous along K, begin at multiples of 16 bytes: of 4 factors."""


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if cuBLASLt may compute `operation` on `target`, else the reason why not."""
    s = operation.signature
    if target.kind is not TargetKind.CUDA:
        return f"cuBLASLt is for NVIDIA GPUs, not for {target.kind}"
    if target.index is None:
        return "cuBLASLt chooses its kernels on the device, and compiles for no other"
    if s.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
        hint = "; its split-K kernels are configurations of matmul"
        return f"cuBLASLt does matmul and batch_matmul, not {s.kind}" + (
            hint if s.kind is OperationKind.MATMUL_SPLITK else ""
        )
    if s.accumulator is not default_accumulator(s.lhs, s.rhs, s.result) and not all_f16(s):
        return f"cuBLASLt has no product of {s.lhs} that accumulates in {s.accumulator}"
    return _format_reason(operation, target) or _epilogue_reason(operation)


def all_f16(s: Signature) -> bool:
    """Whether operands, accumulator and result are f16, which cuBLAS can accumulate too."""
    return s.lhs is s.rhs is s.result is s.accumulator is F16


def _format_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.lhs in (E4M3, E5M2) and s.rhs in (E4M3, E5M2):
        return _fp8_reason(operation, target)
    if s.scaling is not Scaling.NONE:
        return f"cuBLASLt scales fp8 operands only, not {s.lhs}"
    if s.lhs is S8 and s.rhs is S8:
        return _multiples_reason("cuBLASLt's s8 product", operation, _INT8_ELEMENTS)
    if s.lhs is not s.rhs or s.lhs not in _RESULTS:
        return f"cuBLASLt has no product of {s.lhs} and {s.rhs}"
    if s.result not in _RESULTS[s.lhs]:
        known = " or ".join(map(str, _RESULTS[s.lhs]))
        return f"cuBLASLt's product of {s.lhs} returns {known}, not {s.result}"
    if s.lhs in (TF32, BF16) and compute_capability(target.architecture) < _FIRST_BF16_CUDA:
        return f"{target} has no {s.lhs} tensor cores (the first are those of sm_80)"
    return None


def _fp8_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.result not in (BF16, F16, F32):
        return f"without a factor of the result, cuBLASLt returns bf16, f16 or f32, not {s.result}"
    if reason := fp8_reason("cuBLASLt's fp8 product", operation, target):
        return reason
    if s.scaling in (Scaling.NONE, Scaling.TENSOR):
        return None
    if s.kind is not OperationKind.MATMUL:
        return "cuBLASLt takes factors of rows and blocks for single products, not for batches"
    return fine_scales_reason("cuBLASLt", operation, target)


def fp8_reason(who: str, operation: Operation, target: Target) -> str | None:
    """Why cuBLASLt's product of fp8 operands, called `who` in messages, or hipBLASLt's, does not
    compute `operation` on a GPU, or None."""
    s = operation.signature
    if target.kind is TargetKind.CUDA and compute_capability(target.architecture) < _FIRST_FP8_CUDA:
        return f"{target} has no fp8 tensor cores (the first are those of sm_89)"
    if s.lhs is s.rhs and s.lhs.name.startswith("e5m2"):
        return "cuBLASLt does not multiply two e5m2 matrices"
    if s.lhs_layout is not Layout.ROW or s.rhs_layout is not Layout.COLUMN:
        return f"{who} takes A row-major and B column-major (layouts t, n)"
    return _multiples_reason(who, operation, _FP8_BYTES)


def fine_scales_reason(who: str, operation: Operation, target: Target) -> str | None:
    """Why cuBLASLt, called `who` in messages, does not take the factors of rows or blocks of
    `operation` on `target`, or None."""
    s, blocks = operation.signature, operation.signature.blocks
    if compute_capability(target.architecture) != _FINE_SCALES_CUDA:
        return f"{who} takes f32 factors of rows and blocks on sm_90 only, not on {target}"
    if blocks is None:
        return None
    is_known = (blocks.rows, blocks.columns) in {(1, 1), (1, _BLOCK), (_BLOCK, 1)}
    if blocks.dtype is not F32 or blocks.depth != _BLOCK or not is_known:
        return f"{who} takes f32 factors of 1x128, or of 1x128 and 128x128, not {blocks}"
    if s.lhs is not E4M3 or s.rhs is not E4M3:
        return f"{who} takes factors of blocks for e4m3 only"
    if s.result is F16:
        return f"the product of {who} with factors of blocks returns bf16 or f32"
    m, n, k, _ = operation.matmul_shape
    multiple = _BLOCK * (_FACTORS_ALIGNED if blocks.rows != blocks.columns else 1)
    if k % multiple or m % _FP8_BYTES or n % _FP8_BYTES:
        return (
            f"the product of {who} with these factors takes K in multiples of {multiple}, M and N "
            f"in multiples of {_FP8_BYTES}"
        )
    return None


def _multiples_reason(who: str, operation: Operation, step: int) -> str | None:
    """Why K or the axis along which C is contiguous are no multiples of `step`, or None."""
    m, n, k, _ = operation.matmul_shape
    size, name = (m, "M") if operation.signature.result_layout is Layout.COLUMN else (n, "N")
    return f"{who} takes K and {name} in multiples of {step}" if size % step or k % step else None


def _epilogue_reason(operation: Operation) -> str | None:
    s = operation.signature
    steps = s.epilogue
    if not steps:
        return None
    if s.lhs.is_integer:
        return "cuBLASLt's s32 results take no epilogue"
    if EpilogueStep.GELU in steps:
        return "cuBLASLt's gelu is the approximation by tanh; the operation's is the exact one"
    if EpilogueStep.RELU in steps[:-1]:
        return "cuBLASLt applies relu last"
    if EpilogueStep.RESIDUAL in steps and s.beta != 0:
        return "cuBLASLt adds one matrix, either beta·C or the residual"
    if EpilogueStep.BIAS in steps:
        if s.result_layout is Layout.COLUMN:
            return "cuBLASLt adds a bias along the contiguous axis of C, which is M here, not N"
        if s.lhs.is_fp8 and s.result is F32:
            return "cuBLASLt's bias for f32 results of fp8 products is bf16, not f32"
    return None


PROPOSALS = 8
"""Proposals of the heuristic that ``best`` times."""
_MOST_PROPOSALS = 256
_BEST = TRAITS.best_configuration
_BEST_OF = re.compile(r"best([1-9][0-9]{0,2})", re.ASCII)
_ALL = "all"
_ALGORITHMS = ("chosen", "proposals", _ALL)
_MOST = {"proposals": PROPOSALS, _ALL: 1000}
"""How many algorithms are listed by default."""


class CublasLtProvider(BaseProvider):
    """Options: ``algorithms`` (which are listed besides ``default`` and ``best``: ``chosen``, none;
    ``proposals``, those of the heuristic; ``all``, every legal one) and ``most`` (how many of
    them)."""

    name: ClassVar[str] = "cublaslt"
    description: ClassVar[str] = "cuBLASLt's own algorithms, and the best of its proposals"

    requires: ClassVar[Sequence[Requirement]] = (
        ("nvmath", "nvmath-python", "cublaslt"),
        ("torch", "torch", "torch"),
    )

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._listed = str(self.options.get("algorithms", _ALGORITHMS[0]))
        if self._listed not in _ALGORITHMS:
            raise RequestError(
                f"the provider cublaslt lists no algorithms called {self._listed!r}",
                hint=f"Set its option algorithms to {alternatives(_ALGORITHMS)}.",
            )
        most = self.options.get("most", _MOST.get(self._listed, 0))
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise RequestError(
                f"the provider cublaslt cannot list {most!r} algorithms",
                hint="Set its option most to a whole number.",
            )
        self._most = most

    def available(self) -> str | None:
        missing = self.missing()
        if missing is None and not self.targets():
            return "torch sees no NVIDIA GPU, and the library compiles nothing for others"
        return missing

    def targets(self) -> Sequence[Target]:
        return tuple(target for target in self.gpus() if target.kind is TargetKind.CUDA)

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        # torch's default is the same algorithm.
        yield Configuration(DEFAULT_CONFIGURATION, is_proposed=False)
        yield Configuration(_BEST, {"proposals": PROPOSALS})
        if self._listed != _ALGORITHMS[0]:
            yield from self._algorithms(operation, target, self._listed, self._most)

    def proposals(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """The algorithms that the library itself proposes, the first one first."""
        return self._algorithms(operation, target, _ALGORITHMS[1], PROPOSALS)

    def search_space(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """``best``, and every legal algorithm, the heuristic's proposals first."""
        yield Configuration(_BEST, {"proposals": PROPOSALS})
        yield from self._algorithms(operation, target, _ALL, self._most or _MOST[_ALL])

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        count = _proposals(name)
        if count is not None:
            parameters = {} if name == DEFAULT_CONFIGURATION else {"proposals": count}
            return Configuration(name, parameters)
        if not name.startswith("algo") or self.missing() is not None:
            return None
        from gemmetry.providers.cublaslt_provider.algorithms import parse_algorithm

        algorithm = parse_algorithm(name)
        return None if algorithm is None else algorithm.configuration(operation)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        from gemmetry.hardware.torch_device import open_device
        from gemmetry.providers.cublaslt_provider.choosing import load

        proposals = _proposals(dispatch.configuration.name) or 0
        return load(dispatch, proposals, open_device(dispatch.target), workspace)

    def versions(self) -> Mapping[str, str]:
        if self.missing() is not None:
            return {}
        from importlib.metadata import version

        from gemmetry.providers.cublaslt_provider import bindings

        found = {"nvmath-python": version("nvmath-python")}
        with suppress(DispatchError):
            found["cublaslt"] = bindings.version()
        return found

    def doctor_notes(self) -> Sequence[str]:
        if not self.targets():
            return ()
        from gemmetry.providers.cublaslt_provider import bindings

        try:
            bindings.version()
        except DispatchError as error:
            return (f"{error.message}. {error.hint}",)
        return ()

    def _algorithms(
        self, operation: Operation, target: Target, which: str, most: int
    ) -> Iterator[Configuration]:
        """At most so many that the library proposes or accepts on the device of `target`; none
        where it does not work."""
        from gemmetry.hardware.torch_device import open_device
        from gemmetry.providers.cublaslt_provider import algorithms
        from gemmetry.providers.cublaslt_provider.bindings import problem_of
        from gemmetry.providers.cublaslt_provider.choosing import described

        if self.missing() is not None or self.supports(operation, target) is not None:
            return
        problem = problem_of(operation)
        try:
            with described(problem, target, open_device(target)) as matmul:
                found = algorithms.search(matmul, problem, operation)
                if which != _ALL:
                    results = algorithms.proposed(matmul, operation, min(most, _MOST_PROPOSALS))
                    found = (algorithms.algorithm_of(matmul, one) for one in results)
                listed = dict.fromkeys(islice(found, most))
                matmul.close()
        except DispatchError:
            return  # Building ``default`` ends with the reason.
        yield from (algorithm.configuration(operation) for algorithm in listed)


def _proposals(configuration: str) -> int | None:
    """How many proposals a configuration chooses from; None for a named algorithm."""
    if match := _BEST_OF.fullmatch(configuration):
        count = int(match[1])
        return count if 2 <= count <= _MOST_PROPOSALS and count != PROPOSALS else None
    return {DEFAULT_CONFIGURATION: 1, _BEST: PROPOSALS}.get(configuration)


PROVIDER = CublasLtProvider
