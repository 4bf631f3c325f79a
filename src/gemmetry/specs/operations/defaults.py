"""The defaults of a request: shapes and formats of each kind of operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmetry.domain.operation import OperationKind
from gemmetry.domain.target import TargetKind
from gemmetry.specs.operations.shapes import (
    LEGACY_BATCH_SHAPE,
    LEGACY_SPLIT_K_SHAPE,
    LEGACY_SPLIT_K_SLICES,
    PRESETS,
)

DEFAULT_BATCH = 16
"""The batch of a batch_matmul whose request names none: the dispatch profiler's."""

_MATMUL, _SPLIT_K = OperationKind.MATMUL, OperationKind.MATMUL_SPLITK
_BATCH, _CONV = OperationKind.BATCH_MATMUL, OperationKind.CONV2D


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """One set of defaults."""

    kinds: tuple[OperationKind, ...]
    """Kinds when neither kinds nor shapes are given."""
    shapes: Mapping[OperationKind, tuple[str, ...]]
    dtypes: Mapping[OperationKind, tuple[str, ...]]
    slices: tuple[int, ...] = (2, 4)
    provider: str | None = None
    """The only provider when none is given; None: every available one."""
    device: str | None = None
    """The device when none is given; None: the best one here."""
    dispatches: tuple[str, ...] = ()
    """Patterns when neither shapes nor patterns are given."""
    dispatches_for: TargetKind = TargetKind.CUDA
    """The devices whose configurations `dispatches` names; on others all configurations are
    used."""


def _first_run(preset: str, dtype: str) -> Defaults:
    return Defaults(
        kinds=(_MATMUL,),
        shapes={
            _MATMUL: PRESETS[preset].shapes,
            _BATCH: ("4x256x256x256",),
            _SPLIT_K: ("128x128x4096",),
            _CONV: PRESETS["conv"].shapes,
        },
        dtypes=dict.fromkeys(OperationKind, (dtype,)),
    )


FIRST_RUN_CPU = _first_run("first", "f32")
FIRST_RUN_GPU = _first_run("first_gpu", "bf16")


def legacy(provider: str) -> Defaults:
    """The dispatch profiler's own set: 109 dispatches for CUDA, used when `generate` or `compile`
    gets no options. Given shapes replace it, with every configuration of `provider`; ``--shapes
    legacy,768x512x1024`` measures both shapes."""
    return Defaults(
        kinds=(_MATMUL, _SPLIT_K, _BATCH),
        shapes={
            _MATMUL: PRESETS["legacy"].shapes,
            _SPLIT_K: (LEGACY_SPLIT_K_SHAPE,),
            _BATCH: (LEGACY_BATCH_SHAPE,),
            _CONV: PRESETS["conv"].shapes,
        },
        dtypes={
            _MATMUL: ("f16", "f32", "f16:f16:f32"),
            _SPLIT_K: ("f16", "f32"),
            _BATCH: ("f16", "f32"),
            _CONV: ("f32",),
        },
        slices=LEGACY_SPLIT_K_SLICES,
        provider=provider,
        device="cuda-sm_80",
        dispatches=("configuration=tile_config_*_tensorcore_mmasync",),
    )


def first_run(kind: TargetKind) -> Defaults:
    """Defaults for measuring on a device of `kind`."""
    return FIRST_RUN_GPU if kind in (TargetKind.CUDA, TargetKind.HIP) else FIRST_RUN_CPU
