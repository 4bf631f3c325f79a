"""Tuned configurations as ``triton.Config`` objects in a Python module, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.errors import RequestError
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.tiles import tile_of

_CONSTANTS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS", "PERSISTENT")
"""Arguments of the kernels that a configuration determines."""


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], device: str, suffix: str) -> str:
    """See :class:`gemmetry.domain.contracts.TunedFormat`.

    Raises:
        RequestError: there is no configuration.
    """
    if not shapes:
        raise RequestError(
            "there is no configuration to write", hint="See why in the table of the search."
        )
    found = {str(own[0].dispatch.operation): [_row(one) for one in own] for own in shapes}
    if suffix == ".json":
        return json.dumps({"device": device, "configurations": found}, indent=1) + "\n"
    lines = [
        f'"""Configurations that gemmetry tuned on {device}."""',
        "",
        "import triton",
        "",
        "CONFIGS = {",
    ]
    for operation, rows in found.items():
        lines.append(f'    "{operation}": [')
        for row in rows:
            constants = ", ".join(f'"{name}": {value}' for name, value in row["constants"].items())
            lines += [
                f"        # {row['name']} of {row['kernel']}: {row['median_ns'] / 1e3:.5g} µs",
                "        triton.Config(",
                f"            {{{constants}}},",
                f"            num_warps={row['num_warps']},",
                f"            num_stages={row['num_stages']},",
                "        ),",
            ]
        lines.append("    ],")
    lines += [
        "}",
        '"""Operation -> its configurations, the fastest first, then those that tie with it."""',
    ]
    return "\n".join(lines) + "\n"


def _row(tuned: TunedDispatch) -> dict[str, Any]:
    dispatch = tuned.dispatch
    tile = tile_of(dispatch.configuration, dispatch.operation, architecture_of(dispatch.target))
    plan = make_plan(dispatch.operation, tile)
    return {
        "name": tile.name,
        "kernel": plan.kernel,
        "median_ns": tuned.median_ns,
        "constants": {n: plan.constants[n] for n in _CONSTANTS if n in plan.constants},
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }
