"""Runs a plan of slow null dispatches in the folder argv[1], of sizes below argv[2]; test_kill.py
kills it."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind
from gemmetry.domain.operation import F32, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import run

SIGNATURE = Signature(OperationKind.MATMUL, F32, F32, F32)
OPTIONS = {"configurations": ["slow_1", "slow_2", "wrong", "compile_error"]}


def make_plan(end: int) -> Plan:
    """Operations of 8 to `end` × 6 configurations."""
    return Plan(
        name="kill",
        operations=tuple(Operation(SIGNATURE, MatmulShape(size, 8, 8)) for size in range(8, end)),
        providers=(ProviderRequest(name="null", options=OPTIONS),),
        targets=(Target(TargetKind.NULL),),
        settings=RunSettings(
            interval_width=1e-9, min_samples=5, max_samples=20, verification_level="quick"
        ),
        document={"operations": end, "providers": [{"name": "null", "options": OPTIONS}]},
    )


if __name__ == "__main__":
    run(make_plan(int(sys.argv[2])), Path(sys.argv[1]))
