"""A made-up exhaustive run: times that follow a model of the GPU, a taste for certain parameters
that shapes share in part, and noise."""

from __future__ import annotations

import math

import numpy as np

from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.providers.triton_provider.provider import TritonProvider
from gemmetry.tuning.search import features, space_of
from gemmetry.tuning.simulation import MeasuredSpace

H200 = parse_target("cuda-sm_90")
SHAPES = (
    (16, 14336, 4096), (64, 4096, 4096), (128, 6144, 4096), (256, 4096, 14336),
    (512, 6144, 4096), (1024, 2048, 8192), (2048, 2048, 2048), (4096, 4096, 4096),
)  # fmt: skip


def spaces(shapes=SHAPES):
    return [
        space_of(TritonProvider(), parse_operation(f"matmul_{m}x{n}x{k}_bf16t_bf16n_bf16t"), H200)
        for m, n, k in shapes
    ]


def measured(shapes=SHAPES, seed=0, noise=0.01, taste=0.25):
    """An exhaustive run over whole Triton spaces; each tenth configuration fails."""
    rng = np.random.default_rng(seed)
    found = spaces(shapes)
    rows = features(found)
    width = rows[0].shape[1]

    def likes(own, weights, scales):
        return np.tanh(own @ weights / math.sqrt(width)) @ scales / math.sqrt(8)

    common = rng.normal(0, 1, (2, width, 8))[0], rng.normal(0, 1, 8)
    result = []
    for space, own in zip(found, rows, strict=True):
        mine = rng.normal(0, 1, (width, 8)), rng.normal(0, 1, 8)
        logs = space.predicted + taste * (likes(own, *common) + 0.4 * likes(own, *mine))
        times = np.exp(logs + noise * rng.standard_normal(len(space)))
        works = rng.random(len(space)) > 0.1
        chosen = tuple(ns if ok else None for ns, ok in zip(times.tolist(), works, strict=True))
        result.append(MeasuredSpace(space, chosen, (noise / 3,) * len(space)))
    return result
