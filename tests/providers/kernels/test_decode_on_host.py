"""The kernel for few rows of A, run on the host: ``on_host/decode.h`` replaces the instructions of
the copy engine and the tensor cores by what they do. Clusters are left to GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.providers.kernels.conftest import in_namespace

from gemmetry.domain.dispatch import Configuration, parse_operation
from gemmetry.hardware.cuda_plans import Tiles
from gemmetry.providers.cuda_provider.decode import KERNELS

PROCESSORS = 2
CASES = [
    ("decode_ring_32x2x3x1_c1", "matmul_3x80x200_bf16t_bf16n_bf16t"),
    ("decode_ring_16x3x2x2_c1_ahead", "matmul_16x100x576_bf16t_bf16n_bf16t"),
    ("decode_ring_16x2x2x2_c1_ahead", "matmul_9x33x704_bf16t_bf16n_bf16n"),
    ("decode_ring_128x2x2x1_c1", "matmul_5x136x136_bf16t_bf16t_bf16t"),
    ("decode_ring_16x2x2x1_c1", "matmul_10x40x400_bf16t_e4m3n_bf16t"),
    ("decode_ring_16x2x2x2_c1", "matmul_2x40x640_bf16t_e4m3n_bf16t"),
    ("decode_direct_16x2x2_c1", "matmul_9x40x200_bf16t_bf16n_bf16t"),
    ("decode_direct_32x3x1_c1", "matmul_1x70x400_bf16t_e4m3n_bf16t"),
    ("decode_direct_16x2x1_c1", "matmul_6x21x77_bf16n_bf16t_bf16t"),
]


def _argument(tiles: Tiles, memory: str) -> str:
    """A tensor map in braces."""
    boxes = tiles.boxes
    item = {"bf16": 2, "u8": 1}[boxes.element]
    rest = [0] * (3 - len(boxes.extents))
    lists = [[*boxes.extents, *rest], [item, *boxes.strides, *rest], [*boxes.box, *rest]]
    texts = ["{" + ", ".join(map(str, values)) + "}" for values in lists]
    return f"TensorMap{{{memory}, {len(boxes.extents)}, {item}, {', '.join(texts)}}}"


def _case(index: int, configuration: str, name: str) -> tuple[str, str]:
    """The kernel in a namespace of its own, and the statements that run it."""
    operation = parse_operation(name)
    (launch,) = KERNELS[0].plan(operation, Configuration(configuration), PROCESSORS).launches
    macros = dict(launch.compilation.macros)
    instructions = "Instructions.*?(?=// ---- Elements)"
    kernel = in_namespace(f"case_{index}", "gemm/decode", instructions, macros)
    operands = [
        _argument(one, memory) if isinstance(one, Tiles) else memory
        for one, memory in zip(launch.arguments[:2], ("a", "b"), strict=True)
    ]
    m, n, k, *strides = launch.arguments[-1]
    work = ", ".join(map(str, (m, n, k, *strides)))
    a_size, b_size = (spec.dtype.itemsize for spec in operation.inputs[:2])
    call = (
        f"case_{index}::gemm({', '.join(operands)}, c, nullptr, nullptr, nullptr, nullptr, "
        f"nullptr, 1, 0, case_{index}::Work{{{work}}})"
    )
    statements = (
        f"run({{{work}, {a_size}, {b_size}, {launch.grid.blocks[0]}, {launch.grid.threads[0]}}}, "
        f"[](const char* a, const char* b, output_t* c) {{ {call}; }})"
    )
    return kernel, f"if (which == {index}) wrong = {statements};\n"


@pytest.fixture(scope="module")
def program(compiled) -> Path:
    """All cases in one program."""
    kernels, statements = zip(*(_case(i, *case) for i, case in enumerate(CASES)), strict=True)
    main = f"""
        #include <cmath>
        #include "decode.h"
        {"".join(kernels)}
        #include "decode_main.h"
        int main(int count, char** given) {{
          const int which = atoi(given[1]);
          copies_early = backwards = atoi(given[2]);
          int wrong = -1;
          {"".join(statements)}
          printf("%d", wrong);
        }}
    """
    return compiled(main)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[name for name, _ in CASES])
def test_variants_are_right_with_tails_along_every_axis(program: Path, index: int) -> None:
    for copies_early in "01":
        command = [program, str(index), copies_early]
        assert subprocess.check_output(command, text=True) == "0"
