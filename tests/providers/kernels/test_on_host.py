"""Rungs 0 to 4 and the failed attempts, run on the host: ``on_host/emulator.h`` makes each thread a
fiber, and ``on_host/ptx.cuh`` replaces instructions by what they do. Copies are as late as their
waits allow, or immediate; threads run in one order, or in the reverse."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.providers.kernels.conftest import SOURCES, in_namespace

DEADLOCK = 3

R04 = {"TILE_M": 64, "TILE_N": 64, "STAGES": 3, "WARPS_M": 2, "WARPS_N": 2}
KERNELS = {
    # name: source, macros, threads, rows and columns of a block (0: one block for all)
    "r00": ("gemm/r00_naive", {}, 32, 0, 0),
    "r01": ("gemm/r01_thread_per_output", {}, 256, 1, 256),
    "r02_tile16": ("gemm/r02_shared_tiles", {"TILE": 16}, 256, 16, 16),
    "r02_tile32": ("gemm/r02_shared_tiles", {"TILE": 32}, 1024, 32, 32),
    "r03": ("gemm/r03_register_tiles", {}, 256, 128, 128),
    "r04_depth32": ("gemm/r04_mma", {**R04, "TILE_K": 32}, 128, 64, 64),
    "r04_depth64": ("gemm/r04_mma", {**R04, "TILE_K": 64}, 128, 64, 64),
    "attempt_1": ("lessons/attempt_1", {}, 384, 0, 0),
    "attempt_2_hang": ("lessons/attempt_2_hang", {}, 128, 1, 96),
    "attempt_3": ("lessons/attempt_3", {}, 384, 1, 1),
}
RUNGS = [name for name in KERNELS if name.startswith("r")]
SMOKE_TEST = (1, 4, 3)


def _translated(name: str) -> str:
    source, macros, *_ = KERNELS[name]
    text = in_namespace(name, source, "Instructions of sm_80.*?(?=// ---- Tiles)", macros)
    # Loops that wait for memory have to let other fibers run.
    return re.sub(r"(while \(!?ready\)) \{\s*\}", r"\1 spin();", text)


def _launch(name: str) -> str:
    _, _, threads, rows, columns = KERNELS[name]
    if name.startswith("r"):
        call = f"{name}::gemm((const u16*)a, (const u16*)b, (u16*)c, m, n, k)"
    else:
        call = f"{name}::matvec((const float*)a, (const float*)b, (float*)c, n, k)"
    is_matvec = "false" if name.startswith("r") else "true"
    function = f"[](const void* a, const void* b, void* c, int m, int n, int k) {{ {call}; }}"
    return f'{{"{name}", {threads}, {rows}, {columns}, {is_matvec}, {function}}},\n'


@pytest.fixture(scope="module")
def program(compiled) -> Path:
    """All kernels in one program."""
    main = f"""
        #include "ptx.cuh"
        {(SOURCES / "gemm" / "simt.cuh").read_text().replace("#pragma once", "")}
        {"".join(map(_translated, KERNELS))}
        #include "main.h"
        int main(int count, char** given) {{
          const Launch launches[] = {{ {"".join(map(_launch, KERNELS))} }};
          copies_early = atoi(given[5]);
          backwards = atoi(given[6]);
          for (const Launch& one : launches) {{
            if (!strcmp(given[1], one.name)) {{
              return run(one, atoi(given[2]), atoi(given[3]), atoi(given[4]));
            }}
          }}
          return 1;
        }}
    """
    return compiled(main)


def _run(program: Path, name: str, shape, *, early: int = 0, backwards: int = 0):
    arguments = [name, *map(str, shape), str(early), str(backwards)]
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode == DEADLOCK:
        return None
    assert ended.returncode == 0, ended.stdout + ended.stderr
    wrong, conflicts, *values = ended.stdout.split()
    return int(wrong), int(conflicts), [float(value) for value in values]


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 31, 65), (130, 129, 72), (70, 200, 136)])
@pytest.mark.parametrize("name", RUNGS)
def test_rungs_are_right_with_tails_along_every_axis(program, name, shape) -> None:
    for order in (0, 1):
        assert _run(program, name, shape, early=order, backwards=order)[:2] == (0, 0)


@pytest.mark.parametrize("name", KERNELS)
def test_the_smoke_test_shows_what_is_wrong_with_two_attempts(program, name) -> None:
    returns_zeros = name in ("attempt_1", "attempt_3")
    expected = (4, 0, [0, 0, 0, 0]) if returns_zeros else (0, 0, [1, 2, 3, 6])
    assert _run(program, name, SMOKE_TEST) == expected


def test_the_attempts_are_right_where_their_mistakes_do_not_show(program) -> None:
    assert _run(program, "attempt_1", (1, 192, 96))[0] == 0
    assert _run(program, "attempt_1", (1, 256, 96))[0] == 64, "columns past the last warp"
    assert _run(program, "attempt_3", (1, 300, 96))[0] == 0
    assert _run(program, "attempt_2_hang", (1, 300, 16))[0] == 0
    for backwards in (0, 1):  # The hang begins with the second chunk.
        assert _run(program, "attempt_2_hang", (1, 96, 17), backwards=backwards) is None
