"""Our Triton kernel with tensor descriptors in Triton's interpreter, in a process of its own."""

from __future__ import annotations

import importlib.util

import pytest

SCRIPT = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import itertools
import torch
from triton.tools.tensor_descriptor import TensorDescriptor
from gemmetry.providers.kernels.triton_descriptors import matmul_kernel_descriptors

m, n, k = 40, 24, 56
generator = torch.Generator().manual_seed(3)

def stored(rows, columns, row_major):
    # A matrix inside wider memory filled with NaN: reading past an edge would show.
    shape = (rows, columns + 8) if row_major else (columns, rows + 8)
    memory = torch.full(shape, float("nan"), dtype=torch.float16)
    view = memory if row_major else memory.mT
    inside = view[:rows, :columns]
    inside.copy_(torch.randn(rows, columns, generator=generator))
    return memory, inside

def described(matrix, row_major, rows, columns):
    box = [rows, columns] if row_major else [columns, rows]
    return TensorDescriptor.from_tensor(matrix if row_major else matrix.mT, box)

for a_row, b_row, c_row, persistent in itertools.product((True, False), repeat=4):
    parts = 1 + (a_row + b_row + persistent) % 2  # both with every layout of C, persistent or not
    promoted = persistent
    (_, a), (_, b), (memory, c) = stored(m, k, a_row), stored(k, n, b_row), stored(m, n, c_row)
    bias = torch.randn(n, generator=generator).half()
    scale_a = torch.rand(m, generator=generator) + 0.5
    scale_b = torch.rand(n, generator=generator) + 0.5
    before = c.clone()
    expected = a.double() @ b.double() * scale_a.double()[:, None] * scale_b.double()
    expected = (2 * expected + before.double() + bias.double()).clamp(min=0)
    halves = parts if promoted else 1
    matmul_kernel_descriptors[(2 if persistent else 6,)](
        described(a, a_row, 16 // halves, 16), described(b, b_row, 16, 16),
        described(c, c_row, 16 // halves, 16 * halves // parts),
        memory.clone(), scale_a, scale_b, bias, None, m, n, k, memory.stride(0),
        a_row, b_row, c_row, promoted, True, 2.0, 1.0, "bias", "relu", None, None,
        16, 16, 16, 2, parts, persistent,
    )
    error = (c.double() - expected).abs().max().item()
    assert error < 0.05, (a_row, b_row, c_row, parts, persistent, error)
    c.fill_(7.0)
    assert memory.isnan().sum() == memory.numel() - m * n, "wrote outside C"
print("all right")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_layout_with_padding_between_rows(forked) -> None:
    run = forked(SCRIPT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "all right"
