"""The failed attempts: what can be seen of them without a GPU. ``tests/gpu/test_lessons.py`` runs
them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import CompileError
from gemmetry.providers.user_provider.cuda_kernel import why_not
from gemmetry.providers.user_provider.cuda_manifest import load_manifest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.providers.user_provider.cuda_kernel import compile_kernel

FOLDER = Path(str(resources.files("gemmetry.providers.kernels"))) / "lessons"
NAMES = sorted(path.stem for path in FOLDER.glob("*.cu"))
HOPPER = Target(TargetKind.CUDA, "sm_90", None)


def _dispatch(shape: str = "1x4x3") -> Dispatch:
    operation = parse_operation(f"matmul_{shape}_f32t_f32n_f32t")
    return Dispatch(operation, Configuration("default"), "user", HOPPER)


def test_there_is_one_for_each_way_to_fail() -> None:
    assert NAMES == ["attempt_1", "attempt_2_hang", "attempt_2_tiles", "attempt_3"]


@pytest.mark.parametrize("name", NAMES)
def test_they_multiply_a_vector_by_rows(name) -> None:
    """As the document's kernel does: B is stored as (N, K)."""
    kernel = load_manifest(f"{FOLDER / name}.cu:matvec")
    for shape in ("1x4x3", "1x2048x2048"):
        assert why_not(kernel, _dispatch(shape).operation, {}, HOPPER) is None
    assert "M == 1" in (why_not(kernel, _dispatch("2x4x3").operation, {}, HOPPER) or "")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "attempt_2_tiles"])
def test_a_compiler_does_not_see_what_is_wrong(name, tmp_path) -> None:
    kernel = load_manifest(f"{FOLDER / name}.cu:matvec")
    _, compiled = compile_kernel(kernel, _dispatch(), Workspace(generated=tmp_path))
    assert compiled.facts.spill_bytes == 0
    (cubin,) = compiled.code.values()
    assert "warning" not in cubin.log


def test_tiles_that_are_indexed_like_arrays_do_not_compile(tmp_path) -> None:
    kernel = load_manifest(f"{FOLDER / 'attempt_2_tiles'}.cu:matvec")
    before, _, _ = kernel.path.read_text().partition("tile(lane, i)")
    wrong_line = before.count("\n") + 1
    with pytest.raises(CompileError, match=rf"attempt_2_tiles\.cu\({wrong_line}\): error"):
        compile_kernel(kernel, _dispatch(), Workspace(generated=tmp_path))
