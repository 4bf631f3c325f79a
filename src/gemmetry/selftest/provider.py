"""The provider of mutants: looks them up in the catalogue, and builds them by carrier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import ClassVar

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import UnknownNameError, UnsupportedError
from gemmetry.domain.operation import Operation, Signature, operation_name
from gemmetry.hardware.host_device import set_blas_threads
from gemmetry.providers.base import BaseProvider
from gemmetry.selftest.catalogue import (
    Carrier,
    Mutant,
    all_mutants,
    mutants_by_configuration,
    signature_of,
)

_KINDS = {
    Carrier.HOST: (TargetKind.CPU,),
    Carrier.TRITON: (TargetKind.CPU, TargetKind.CUDA),
    Carrier.CUDA: (TargetKind.CUDA,),
}
"""Carrier -> kinds of device on which its kernels run."""

_NEEDS = {
    Carrier.HOST: (),
    Carrier.TRITON: ("triton", "torch"),
    Carrier.CUDA: ("cuda.bindings", "torch"),
}
"""Carrier -> modules without which its kernels cannot run."""


def carrier_problem(carrier: Carrier, target: Target) -> str | None:
    """Why kernels of `carrier` do not run on `target`; None if they do."""
    if target.kind not in _KINDS[carrier]:
        return f"{carrier} kernels do not run on {target}"
    if target.index is None:
        return f"no {target} is on this machine"
    missing = [name for name in _NEEDS[carrier] if not _is_installed(name)]
    if missing:
        return f"needs {' and '.join(missing)}"
    return None


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


class MutantProvider(BaseProvider):
    """Kernels with deliberate bugs, and correct ones that are easy to mistake for wrong.

    They serve the self-test of verification. An operation has the kernels that the catalogue lists
    for it, and any other operation has none.
    """

    name: ClassVar[str] = "mutant"
    description: ClassVar[str] = "kernels with deliberate bugs, for the self-test of verification"

    def available(self) -> str | None:
        return None

    def targets(self) -> Sequence[Target]:
        targets = [Target(TargetKind.CPU)]
        if _is_installed("torch"):
            from gemmetry.hardware.torch_device import gpu_targets

            targets += [target for target in gpu_targets() if target.kind is TargetKind.CUDA]
        return targets

    def supports(self, operation: Operation, target: Target) -> str | None:
        reason = "no mutant computes operations of this form"
        for item in all_mutants():
            if _computes(item, operation):
                problem = carrier_problem(item.carrier, target)
                if problem is None:
                    return None
                reason = problem
        return reason

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        name = operation_name(operation)
        return [
            item.as_configuration()
            for item in all_mutants()
            if item.operation == name and carrier_problem(item.carrier, target) is None
        ]

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        item = mutants_by_configuration().get(name)
        if item is None or not _computes(item, operation):
            return None
        return item.as_configuration()

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        """Build the mutant, at its own shape or at any other of the same signature; on the host
        also with other factors alpha and beta.

        Raises:
            UnknownNameError: no mutant has that name.
            UnsupportedError: its carrier does not run here, or it computes something else.
        """
        item = mutants_by_configuration().get(dispatch.configuration.name)
        if item is None:
            raise UnknownNameError(
                "mutant", dispatch.configuration.name, list(mutants_by_configuration())
            )
        problem = carrier_problem(item.carrier, dispatch.target)
        if not _computes(item, dispatch.operation):
            problem = f"it computes {item.operation} and other shapes of that"
        if problem is not None:
            raise UnsupportedError(f"{dispatch}: {problem}")
        if dispatch.target.kind is TargetKind.CPU:
            # Its products are too small for several threads, which would keep spinning after each
            # product: that took most of the processor time of a self-test.
            set_blas_threads(1)
        return _build(item, dispatch)


def _computes(item: Mutant, operation: Operation) -> bool:
    wanted, signature = signature_of(item.operation), operation.signature
    if item.carrier is Carrier.HOST:
        wanted, signature = _without_factors(wanted), _without_factors(signature)
    return wanted == signature


@cache
def _without_factors(signature: Signature) -> Signature:
    return replace(signature, alpha=1.0, beta=0.0)


def _build(item: Mutant, dispatch: Dispatch) -> Executable:
    match item.carrier:
        case Carrier.HOST:
            from gemmetry.selftest import emulator

            return emulator.build(item, dispatch)
        case Carrier.TRITON:
            from gemmetry.selftest import triton

            return triton.build(item, dispatch)
        case Carrier.CUDA:
            from gemmetry.selftest import cuda

            return cuda.build(item, dispatch)


PROVIDER = MutantProvider
