from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.operation import BF16, E4M3, E4M3FNUZ, E5M2, F16, F32, F64  # noqa: E402
from gemmetry.hardware import torch_device as digests  # noqa: E402
from gemmetry.hardware.torch_device import digest, to_tensor, torch_dtype  # noqa: E402
from gemmetry.numerics.storage import quantize  # noqa: E402

VALUES = np.random.default_rng(1).standard_normal((37, 53))


def _tensor(dtype, values=VALUES):
    return to_tensor(quantize(values, dtype), dtype)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, E4M3, E5M2], ids=str)
def test_equal_bytes_have_equal_digests_and_others_do_not(dtype, monkeypatch):
    tensor = _tensor(dtype, VALUES[:7, :11])
    known = digest(tensor)
    assert digest(tensor.clone()) == known
    monkeypatch.setattr(digests, "_DIGEST_PIECE", 32)
    assert digest(tensor) == known, "pieces change nothing"
    found = {known}
    bits = tensor.view(torch.uint8).reshape(-1)
    for at in range(bits.numel()):  # Every byte counts.
        bits[at] ^= 1
        found.add(digest(tensor))
        bits[at] ^= 1
    assert len(found) == bits.numel() + 1
    rows = tensor.view(torch.uint8)
    assert digest(rows.flip(0).contiguous()) not in found, "so does every place"
    assert digest(torch.zeros(4, dtype=torch.uint8)) != digest(torch.zeros(8, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, E4M3, E5M2], ids=str)
def test_negated_lines_count_with_the_opposite_sign(dtype):
    tensor, values = _tensor(dtype), VALUES.copy()
    values[5] *= -1
    lines = [(slice(5, 6), slice(None))]
    assert digest(_tensor(dtype, values), lines) == digest(tensor)
    assert digest(tensor, lines) == digest(_tensor(dtype, values))
    assert digest(tensor, lines) != digest(tensor)
    assert torch.equal(tensor.view(torch.uint8), _tensor(dtype).view(torch.uint8)), "only read"


def test_formats_without_a_sign_bit_are_left_to_the_host():
    for tensor in (
        torch.zeros(3, 4, dtype=torch_dtype(E4M3FNUZ)),
        torch.zeros(3, 4, dtype=torch.int32),
    ):
        assert digest(tensor, [(slice(0, 1),)]) is None
        assert digest(tensor) is not None
