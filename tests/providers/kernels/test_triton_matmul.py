"""Our Triton kernels in Triton's interpreter, with padding between rows, in a process of their own:
Triton decides whether it interprets when it is first imported."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import itertools, torch
from triton.tools.tensor_descriptor import TensorDescriptor
from gemmetry.providers.kernels.triton_descriptors import matmul_kernel_descriptors
from gemmetry.providers.kernels.triton_matmul import matmul_kernel

generator = torch.Generator().manual_seed(3)

def stored(*batch, rows, columns, row_major, padding, dtype=torch.float32):
    # A matrix inside wider memory filled with NaN: reading past an edge would show.
    shape = (rows, columns + padding) if row_major else (columns, rows + padding)
    memory = torch.full((*batch, *shape), float("nan"), dtype=dtype)
    view = (memory if row_major else memory.mT)[..., :rows, :columns]
    view.copy_(torch.randn(*batch, rows, columns, generator=generator))
    return memory, view

def check(memory, view, expected, most, *case):
    error = (view.double() - expected).abs().max().item()
    assert error < most, (*case, error)
    view.fill_(float("nan"))
    assert memory.isnan().all(), "wrote outside C"

def pointers(a_row, b_row, c_row):
    m, n, k, batch = 19, 23, 37, 2
    a, a_view = stored(batch, rows=m, columns=k, row_major=a_row, padding=3)
    b, b_view = stored(batch, rows=k, columns=n, row_major=b_row, padding=5)
    c, c_view = stored(batch, rows=m, columns=n, row_major=c_row, padding=7)
    programs = -(-m // 16) * -(-n // 16) * batch
    matmul_kernel[(programs,)](
        a, b, c, None, None, None, None, None, m, n, k,
        a.stride(1), b.stride(1), c.stride(1), a.stride(0), b.stride(0), c.stride(0),
        a_row, b_row, c_row, False, False, False, "ieee", None, False, False,
        1.0, 0.0, None, None, None, None, 16, 16, 16, 2,
    )
    check(c, c_view, a_view.double() @ b_view.double(), 1e-4, a_row, b_row, c_row)

def described(matrix, row_major, rows, columns):
    box = [rows, columns] if row_major else [columns, rows]
    return TensorDescriptor.from_tensor(matrix if row_major else matrix.mT, box)

def descriptors(a_row, b_row, c_row, persistent):
    m, n, k = 40, 24, 56
    parts = 1 + (a_row + b_row + persistent) % 2  # both with every layout of C, persistent or not
    how = {"padding": 8, "dtype": torch.float16}
    _, a = stored(rows=m, columns=k, row_major=a_row, **how)
    _, b = stored(rows=k, columns=n, row_major=b_row, **how)
    memory, c = stored(rows=m, columns=n, row_major=c_row, **how)
    bias = torch.randn(n, generator=generator).half()
    scale_a = torch.rand(m, generator=generator) + 0.5
    scale_b = torch.rand(n, generator=generator) + 0.5
    expected = a.double() @ b.double() * scale_a.double()[:, None] * scale_b.double()
    expected = (2 * expected + c.double() + bias.double()).clamp(min=0)
    promoted, halves = persistent, parts if persistent else 1
    matmul_kernel_descriptors[(2 if persistent else 6,)](
        described(a, a_row, 16 // halves, 16), described(b, b_row, 16, 16),
        described(c, c_row, 16 // halves, 16 * halves // parts),
        memory.clone(), scale_a, scale_b, bias, None, m, n, k, memory.stride(0),
        a_row, b_row, c_row, promoted, True, 2.0, 1.0, "bias", "relu", None, None,
        16, 16, 16, 2, parts, persistent,
    )
    check(memory, c, expected, 0.05, a_row, b_row, c_row, parts, persistent)

for layouts in itertools.product((True, False), repeat=3):
    pointers(*layouts)
    for persistent in (True, False):
        descriptors(*layouts, persistent)
print("all right")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_layout_with_padding_between_rows(forked) -> None:
    run = forked(SCRIPT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "all right"


def test_masked_loads_fill_with_a_float() -> None:
    """Triton up to 3.8 cannot cast the integer 0 to fp8; 0.0 becomes every type we load."""
    spec = importlib.util.find_spec("gemmetry.providers.kernels.triton_matmul")
    assert spec is not None and spec.origin is not None
    fills = [
        keyword.value.value
        for node in ast.walk(ast.parse(Path(spec.origin).read_text()))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "other" and isinstance(keyword.value, ast.Constant)
    ]
    assert len(fills) >= 7
    assert {type(fill) for fill in fills} == {float}
