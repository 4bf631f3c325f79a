"""The catalogue: every mutant and every correct but tricky kernel, as data. Each is registered
where it is defined: on the host by a decorator of its class, in Triton and CUDA as a row of a
table.

The numbers are those of our list of bugs that real GEMM kernels had (docs/verification.md). A bug
may occur more than once, with another carrier or in a variant that only another check finds.
Importing this module loads no heavy library.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Signature
from gemmetry.providers.mutant_provider import host, unseen
from gemmetry.providers.mutant_provider.cuda.catalogue import MUTANTS as ON_CUDA
from gemmetry.providers.mutant_provider.mutant import ON_HOST, Mutant
from gemmetry.providers.mutant_provider.triton.catalogue import MUTANTS as ON_TRITON

WITHOUT_MUTANT: Mapping[int, str] = {
    53: (
        "a kernel that calls a vendor's library gives correct results, and operations do not "
        "require a kernel of one's own; a profiler's list of kernel names shows such calls"
    ),
}
"""Number in the list of bugs -> why there is no mutant for it."""


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """All kernels of the catalogue, by carrier and in the order of their numbers."""
    for package in (host, unseen):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    on_host = sorted(ON_HOST, key=lambda item: (item.is_unseen, not item.is_bug, item.number))
    seen = sum(not item.is_unseen for item in on_host)
    return (*on_host[:seen], *ON_TRITON, *ON_CUDA, *on_host[seen:])


@cache
def mutants_by_configuration() -> Mapping[str, Mutant]:
    """Name of a configuration -> kernel of the catalogue."""
    return {item.configuration: item for item in all_mutants()}


@cache
def signature_of(operation: str) -> Signature:
    """The signature of the operation named `operation`."""
    return parse_operation(operation).signature
