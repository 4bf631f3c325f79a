"""Runs a plan of slow null dispatches in the folder argv[1]; test_kill.py kills it."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmetry.domain.dtypes import F32
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.plan import Plan, ProviderRequest
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine import run

SIGNATURE = Signature(OperationKind.MATMUL, F32, F32, F32)


def make_plan() -> Plan:
    """Three groups (their products are too large to share one) × four configurations."""
    names = ["slow_2", "slow_3", "wrong", "compile_error"]
    return Plan(
        name="kill",
        operations=tuple(
            Operation(SIGNATURE, MatmulShape(size, 400, 400)) for size in (320, 330, 340)
        ),
        providers=(ProviderRequest(name="null", options={"configurations": names}),),
        targets=(Target(TargetKind.NULL),),
        settings=RunSettings(repetitions=20, min_samples=5, verification_level="quick"),
        document={"names": names},
    )


if __name__ == "__main__":
    run(make_plan(), Path(sys.argv[1]))
