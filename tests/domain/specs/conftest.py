"""A catalogue of fake providers, so that specs are tested without any library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.providers.base import traits_of

CPU = Target(TargetKind.CPU)
GPU = Target(TargetKind.CUDA, "sm_90", 0, "Pretend GPU")
SECOND_GPU = Target(TargetKind.CUDA, "sm_90", 1, "Pretend GPU")
SM_80 = Target(TargetKind.CUDA, "sm_80", None)


class FakeCatalogue:
    """Providers by name with their targets; `missing` ones do not work here."""

    def __init__(self, targets: Mapping[str, Sequence[Target]], missing: Sequence[str] = ()):
        self._targets = targets
        self._missing = missing
        self.requests: list[str] = []

    def provider_names(self) -> Sequence[str]:
        return sorted(self._targets)

    def traits(self, name: str) -> ProviderTraits:
        return traits_of(name)

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        self.requests.append(name)
        return "its library is not installed" if name in self._missing else None

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        return self._targets[name]


NULL = Target(TargetKind.NULL)


@pytest.fixture
def laptop() -> FakeCatalogue:
    return FakeCatalogue(
        {"iree": [CPU, SM_80], "null": [NULL], "numpy": [CPU], "torch": [CPU], "triton": [SM_80],
         "user": [CPU]}
    )  # fmt: skip


@pytest.fixture
def gpu_machine() -> FakeCatalogue:
    gpus = [GPU, SECOND_GPU]
    return FakeCatalogue(
        {"iree": [CPU, SM_80], "null": [NULL], "numpy": [CPU], "torch": [CPU, *gpus],
         "triton": [*gpus, SM_80], "user": [CPU, GPU]}
    )  # fmt: skip


@pytest.fixture
def without_torch() -> FakeCatalogue:
    return FakeCatalogue({"numpy": [CPU], "torch": [CPU]}, missing=["torch"])
