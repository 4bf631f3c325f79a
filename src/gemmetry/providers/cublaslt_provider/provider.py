"""The provider: what it supports, its configurations, and building them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Dispatch
from gemmetry.domain.errors import (
    DispatchError,
    RequestError,
    UnsupportedError,
    alternatives,
)
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.cublaslt_provider import TRAITS
from gemmetry.providers.cublaslt_provider.support import reason_against

if TYPE_CHECKING:
    from gemmetry.providers.cublaslt_provider.executable import CublasLtExecutable

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
        missing = self._missing()
        if missing is None and not self.targets():
            return "torch sees no NVIDIA GPU, and the library compiles nothing for others"
        return missing

    def _missing(self) -> str | None:
        """The package that is not installed, and how to install it."""
        for module, name, extra in (("nvmath", "nvmath-python", "cublaslt"), ("torch",) * 3):
            if importlib.util.find_spec(module) is None:
                return f"{name} is not installed; pip install 'gemmetry[{extra}]'"
        return None

    def targets(self) -> Sequence[Target]:
        if self._missing() is not None:
            return ()
        from gemmetry.devices.torch import gpu_targets

        return [target for target in gpu_targets() if target.kind is TargetKind.CUDA]

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        yield Configuration(DEFAULT_CONFIGURATION)
        yield Configuration(_BEST, {"proposals": PROPOSALS})
        if self._listed != _ALGORITHMS[0]:
            yield from self._algorithms(operation, target, self._listed, self._most)

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
        if not name.startswith("algo") or self._missing() is not None:
            return None
        from gemmetry.providers.cublaslt_provider.algorithms import parse_algorithm

        algorithm = parse_algorithm(name)
        return None if algorithm is None else algorithm.configuration(operation)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> CublasLtExecutable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        from gemmetry.devices.torch import open_device
        from gemmetry.providers.cublaslt_provider.choosing import load

        proposals = _proposals(dispatch.configuration.name) or 0
        return load(dispatch, proposals, open_device(dispatch.target), workspace)

    def versions(self) -> Mapping[str, str]:
        if self._missing() is not None:
            return {}
        from importlib.metadata import version

        from gemmetry.providers.cublaslt_provider import bindings

        try:
            return {"nvmath-python": version("nvmath-python"), "cublaslt": bindings.version()}
        except DispatchError:
            return {"nvmath-python": version("nvmath-python")}

    def doctor_notes(self) -> Sequence[str]:
        if self._missing() is not None or not self.targets():
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
        from gemmetry.devices.torch import open_device
        from gemmetry.providers.cublaslt_provider import selecting
        from gemmetry.providers.cublaslt_provider.choosing import described
        from gemmetry.providers.cublaslt_provider.problem import problem_of

        if self._missing() is not None or self.supports(operation, target) is not None:
            return
        problem = problem_of(operation)
        try:
            with described(problem, target, open_device(target)) as matmul:
                if which == _ALL:
                    found = selecting.search(matmul, problem, operation)
                else:
                    count = min(most, _MOST_PROPOSALS)
                    results = selecting.proposed(matmul, operation, count)
                    found = (selecting.algorithm_of(matmul, one) for one in results)
                listed = dict.fromkeys(islice(found, most))
                matmul.close()
        except DispatchError:
            return  # Building ``default`` ends with the reason.
        for algorithm in listed:
            yield algorithm.configuration(operation)


def _proposals(configuration: str) -> int | None:
    """How many proposals a configuration chooses from; None for a named algorithm."""
    match = _BEST_OF.fullmatch(configuration)
    if match is not None:
        count = int(match[1])
        return count if 2 <= count <= _MOST_PROPOSALS and count != PROPOSALS else None
    return {DEFAULT_CONFIGURATION: 1, _BEST: PROPOSALS}.get(configuration)


PROVIDER = CublasLtProvider
