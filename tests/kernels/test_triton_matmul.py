"""Our Triton kernel in Triton's interpreter, in a process of its own.

Triton decides whether it interprets when it is first imported, so the check runs as a script.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import itertools, torch
from gemmetry.providers.kernels.triton_matmul import matmul_kernel

m, n, k, batch = 19, 23, 37, 2
generator = torch.Generator().manual_seed(3)

def stored(rows, columns, row_major, padding):
    # A matrix inside wider memory filled with NaN: reading past an edge would show.
    shape = (batch, rows, columns + padding) if row_major else (batch, columns, rows + padding)
    memory = torch.full(shape, float("nan"))
    view = memory if row_major else memory.mT
    view[:, :rows, :columns] = torch.randn(batch, rows, columns, generator=generator)
    return memory, view[:, :rows, :columns]

for a_row, b_row, c_row in itertools.product((True, False), repeat=3):
    (a, a_view), (b, b_view) = stored(m, k, a_row, 3), stored(k, n, b_row, 5)
    c, c_view = stored(m, n, c_row, 7)
    expected = a_view.double() @ b_view.double()
    c_view.fill_(7.0)
    c_before = c.clone()
    programs = -(-m // 16) * -(-n // 16) * batch
    matmul_kernel[(programs,)](
        a, b, c, None, None, None, None, None, m, n, k,
        a.stride(1), b.stride(1), c.stride(1), a.stride(0), b.stride(0), c.stride(0),
        a_row, b_row, c_row, False, False, False, "ieee", None, False, False,
        1.0, 0.0, None, None, None, None, 16, 16, 16, 2,
    )
    error = (c_view - expected).abs().max().item()
    assert error < 1e-4, (a_row, b_row, c_row, error)
    c_view.fill_(7.0)
    assert torch.equal(c.nan_to_num(), c_before.nan_to_num()), "wrote outside C"
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
    tree = ast.parse(Path(spec.origin).read_text())
    fills = [
        keyword.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "other" and isinstance(keyword.value, ast.Constant)
    ]
    assert len(fills) >= 7
    assert {type(fill) for fill in fills} == {float}
