"""Builds Triton mutants: compiled on a GPU, interpreted on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.triton_provider.provider import require_interpreter
from gemmetry.selftest.catalogue import Mutant, TritonRecipe

_GROUP_M = 2
_LARGEST = 2**31 - 1
"""The most elements of a matrix, because the kernel's offsets have 32 bits."""


def build(item: Mutant, dispatch: Dispatch) -> Executable:
    """Prepare `item` for the dispatch's shape; Triton compiles it at the first launch.

    Raises:
        UnsupportedError: the shape is too large, or the interpreter is needed but this process has
            already imported triton as a compiler.
    """
    m, n, k, _ = dispatch.operation.matmul_shape
    if max(m * k, k * n, m * n) > _LARGEST:
        raise UnsupportedError(f"{dispatch}: matrices of more than {_LARGEST} elements")
    if not dispatch.target.is_gpu:
        require_interpreter()
    from gemmetry.hardware.torch_device import TORCH_ERRORS, open_device
    from gemmetry.providers.kernels.triton_mutants import mutant_matmul
    from gemmetry.selftest.torch_callers import TorchMutant

    recipe: TritonRecipe = item.recipe
    device = open_device(dispatch.target)
    tiles = -(-m // item.tile[0]) * -(-n // item.tile[1]) * recipe.splits
    grid = (min(recipe.programs, tiles) if recipe.programs else tiles,)
    launch = mutant_matmul[grid]
    code = item.code
    adds_to_zeros = recipe.splits > 1 and item.is_bug is False

    def submit(inputs: Sequence[Buffer], output: Buffer) -> None:
        if adds_to_zeros:
            output.zero_()
        try:
            launch(
                *inputs, output, m, n, k, code,
                recipe.splits, recipe.reversed, recipe.thirds, *item.tile, _GROUP_M,
            )  # fmt: skip
        except TORCH_ERRORS as error:
            raise device.translate(error, f"running {dispatch.name}") from error

    notes = () if dispatch.target.is_gpu else ("ran in Triton's interpreter",)
    facts = BuildFacts(declared=item.declared, notes=notes)
    return TorchMutant(item.slug, device, facts, submit)
