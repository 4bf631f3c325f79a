"""Launches apart and back to back on a GPU: torch does not depend on it, and an early start gains
only behind itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gemmetry
from gemmetry.domain.dispatch import Target, parse_operation
from gemmetry.domain.settings import APART, BACK_TO_BACK
from gemmetry.providers.cuda_provider import catalogue

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]

SHAPES = ("2048x2048x2048", "4096x4096x4096", "1x4096x4096")


@pytest.mark.parametrize("shape", SHAPES)
def test_what_runs_between_launches_is_not_in_their_time(
    tmp_path: Path, gpu: Target, shape: str
) -> None:
    if not catalogue.is_hopper(gpu):
        pytest.skip(f"the kernels are for Hopper, this is {gpu}")
    operation = f"matmul_{shape}_bf16t_bf16n_bf16t"
    chosen = catalogue.choose(parse_operation(operation))
    assert chosen is not None
    early = f"{chosen.name}{'_ahead' if chosen.name.startswith('decode') else '_early'}"
    times: dict[tuple[str, str], float] = {}
    for launches in (APART, BACK_TO_BACK, APART):
        found = gemmetry.profile(
            {"dispatches": [f"{operation}_{name}" for name in ("default", chosen.name, early)]},
            providers="torch,cuda",
            experiment=tmp_path / launches,
            fresh=True,
            device="cuda:0",
            verification_level="quick",
            launches=launches,
            time_budget="0.3s",
        )
        for record in found:
            m = record.measurement
            assert m is not None, record.reason
            assert m.launches == launches
            if (record.provider, record.configuration) != ("cuda", "default"):
                times[record.configuration, launches] = m.median_ns
    print(f"\n{shape:>16} {'µs apart':>10} {'× torch':>8} {'µs back to back':>16} {'× torch':>8}")
    for name in ("default", chosen.name, early):
        cells = (
            f"{times[name, one] / 1e3:10.2f} {times['default', one] / times[name, one]:8.3f}"
            for one in (APART, BACK_TO_BACK)
        )
        print(f"{name:>32}", *cells)
    for name in ("default", chosen.name):
        assert times[name, APART] == pytest.approx(times[name, BACK_TO_BACK], rel=0.15), name
    # Next to what the same rounds measured: runs differ with the clock at the power limit.
    apart, together = (times[early, one] / times[chosen.name, one] for one in (APART, BACK_TO_BACK))
    assert apart > 0.97 * together
