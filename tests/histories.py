"""Synthetic histories for tests and benchmarks: runs of simulated nights with planted changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from gemmetry.history.folder import SCHEMA, HistoryPoint, HistoryRun, points_digest

DEVICE = "NVIDIA H200, 140 GiB, 700 W"
FIRST_NIGHT = datetime(2026, 1, 1, 2, tzinfo=UTC)

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def gaussian(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(size=shape)


def heavy_tails(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Student's t with two degrees of freedom, whose variance is infinite."""
    return random.standard_t(2, size=shape)


def correlated(r: float) -> Noise:
    """Neighbouring runs correlate with `r` (AR(1)), around a constant level."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        steps = random.normal(size=shape)
        values = np.empty(shape)
        values[..., 0] = steps[..., 0]
        for place in range(1, shape[-1]):
            values[..., place] = (
                r * values[..., place - 1] + math.sqrt(1 - r * r) * steps[..., place]
            )
        return values

    return draw


@dataclass(kw_only=True)
class SyntheticHistory:
    """Runs of `shapes` problems with three providers each: torch as the reference, and two more."""

    shapes: int = 10
    runs: int = 60
    noise: float = 0.004
    """Relative, of each dispatch in each run."""
    host_noise: float = 0.004
    """Relative, of all dispatches of a run together."""
    kind: Noise = gaussian
    seed: int = 1
    providers: Sequence[str] = ("torch", "triton", "iree")
    times: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    """(provider, shape) -> the factor of each run on its time."""
    environments: list[dict[str, Any]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    clocks: np.ndarray = field(init=False)
    lost: set[tuple[str, int, int]] = field(default_factory=set)
    """(provider, shape, run): crashed in it."""

    def __post_init__(self) -> None:
        self.clocks = np.full(self.runs, 1.98e9)
        self.times = {(provider, shape): np.ones(self.runs)
                      for provider in self.providers for shape in range(self.shapes)}  # fmt: skip
        packages = {"gemmetry": "0.1.0", "torch": "2.9.0", "triton": "3.5.0"}
        self.environments = [
            {"hostname": "node", "driver": "580.1", "packages": dict(packages)}
            for _ in range(self.runs)
        ]
        self.settings = [{"verification_level": "standard"} for _ in range(self.runs)]

    def slow(
        self, factor: float, first: int, *, provider: str = "*", shape: int | None = None,
        end: int | None = None,
    ) -> None:  # fmt: skip
        """Multiply times from run `first` on (until before `end`)."""
        for (name, number), factors in self.times.items():
            if provider in ("*", name) and shape in (None, number):
                factors[first:end] *= factor

    @staticmethod
    def dispatch(provider: str, shape: int) -> str:
        """``provider:name`` of a dispatch."""
        return f"{provider}:{_operation(shape)}_default"

    def upgrade(self, first: int, package: str, version: str) -> None:
        for environment in self.environments[first:]:
            environment["packages"][package] = version

    def entries(self) -> list[HistoryRun]:
        random = np.random.default_rng(self.seed)
        host = np.exp(self.host_noise * gaussian(random, (self.runs,)))
        keys = list(self.times)
        noise = np.exp(self.noise * self.kind(random, (len(keys), self.runs)))
        medians = np.array([self.times[key] for key in keys]) * noise * host
        return [self._run(number, keys, medians[:, number]) for number in range(self.runs)]

    def _run(self, number: int, keys: Sequence[tuple[str, int]], factors: np.ndarray) -> HistoryRun:
        points = [
            self._point(number, provider, shape, 1e5 * (1 + shape) * factor)
            for (provider, shape), factor in zip(keys, factors.tolist(), strict=True)
        ]
        night = FIRST_NIGHT + timedelta(days=number)
        return HistoryRun(
            schema=SCHEMA, id=f"run{number:09x}", digest=points_digest(points), device=DEVICE,
            time=night.isoformat(timespec="seconds"), points=points, commit=f"{number:07x}abcdef",
            settings=self.settings[number], environments={"e": self.environments[number]},
        )  # fmt: skip

    def _point(self, number: int, provider: str, shape: int, median: float) -> HistoryPoint:
        operation = _operation(shape)
        common: Mapping[str, Any] = {
            "provider": provider, "dispatch": f"{operation}_default", "operation": operation,
            "target": "cuda-sm_90", "distribution": "normal", "environment": "e",
        }  # fmt: skip
        if (provider, shape, number) in self.lost:
            return HistoryPoint(**common, outcome="crash")
        return HistoryPoint(
            **common, median_ns=median, low_ns=0.998 * median, high_ns=1.002 * median, samples=60,
            rounds=12, method="graph", sm_clock_hz=float(self.clocks[number]), power_w=600.0,
        )  # fmt: skip


def _operation(shape: int) -> str:
    return f"matmul_{64 * (shape + 1)}x256x256_bf16t_bf16t_f32t"
