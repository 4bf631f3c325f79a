"""The example in Gluon: compiled for Hopper on a machine without one, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.providers.user_provider.kernel import load_kernel

EXAMPLE = Path(__file__).parents[3] / "examples" / "gluon_gemm.py"
torch = pytest.importorskip("torch")
pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")


@pytest.fixture(scope="module")
def kernel():
    return load_kernel(f"{EXAMPLE}:matmul")


@pytest.mark.parametrize("b_row_major", [False, True])
def test_it_uses_wgmma_bulk_copies_and_barriers(kernel, b_row_major, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    sizes = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "warps": 4, "stages": 4}
    compile_for_hopper = kernel.function.__globals__["compile_for_hopper"]
    compiled = compile_for_hopper(sizes, result=torch.float32, b_row_major=b_row_major)
    assert compiled.metadata.shared >= 4 * 2 * 64 * 64 * 2
    for instruction in ("wgmma.mma_async", "cp.async.bulk.tensor.2d.shared", "mbarrier.try_wait",
                        "cp.async.bulk.tensor.2d.global", "mbarrier.arrive.expect_tx"):  # fmt: skip
        assert instruction in compiled.asm["ptx"]


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("float32 64 64", "float32 64 64", "float32 64 64"),
        ("float16 64 64", "float16 64 64", "bfloat16 64 64"),
        ("float16 64 65", "float16 65 64", "float16 64 64"),
        ("float16 64 64", "float16 64 66", "float32 64 66"),
    ],
)
def test_what_bulk_copies_cannot_describe_is_refused(kernel, a, b, out) -> None:
    def empty(text):
        dtype, rows, columns = text.split()
        return torch.empty(int(rows), int(columns), dtype=getattr(torch, dtype))

    configuration = next(iter(kernel.configurations.values()))
    with pytest.raises(ValueError, match=r"multiplies|need"):
        kernel.function(empty(a), empty(b), out=empty(out), **configuration)
