"""What providers decide without a device, for each line of the files next to this one.

``supports.txt`` has the reason why an operation is refused on a target, or ``yes``; ``plans.txt``
what a kernel is given; ``names.txt`` the parameters of a configuration's name, or ``no``;
``functions.mlir`` IREE's functions. Each line, and each name of a function,
begins with the question. ``python tests/providers/test_decisions.py`` writes what today's code
answers; a new case is a line with its question alone.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.dispatch import (
    Configuration,
    Dispatch,
    parse_operation,
    parse_target,
    split_dispatch_name,
)
from gemmetry.domain.operation import Operation
from gemmetry.hardware.cuda_plans import Boxes, Pointer, Tiles
from gemmetry.providers.cublaslt_provider.bindings import problem_of
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.iree_provider.batches import dispatch_function, parse_functions
from gemmetry.providers.iree_provider.tiles import parse_tile
from gemmetry.providers.registry import load_provider
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.tiles import tile_of

FOLDER = Path(__file__).parent
FILES = ("supports.txt", "plans.txt", "names.txt", "functions.mlir")


@cache
def provider(name: str) -> Any:
    name, _, option = name.partition("-")
    return load_provider(name, {option: True} if option else None)


def supports(name: str, operation: str, target: str) -> str:
    return provider(name).supports(parse_operation(operation), parse_target(target)) or "yes"


def configuration(name: str, operation: str, target: str, text: str = "") -> str:
    found = provider(name).parse_configuration(
        text, parse_operation(operation), parse_target(target)
    )
    return "no" if found is None else f"{found.name} {json.dumps(dict(found.parameters))}"


def plan(name: str, operation: str, *rest: str) -> str:
    made = {"cuda": _cuda, "triton": _triton, "iree": _iree, "cublaslt": _cublaslt}[name]
    return made(parse_operation(operation), *rest)


def _cuda(operation: Operation, configuration: str) -> str:
    kernel = catalogue.kernel_of(configuration)
    found = kernel.configuration(configuration, operation)
    if found is None or (reason := kernel.why_not(operation, found)):
        return f"refused: {'no such configuration' if found is None else reason}"
    plan = kernel.plan(operation, found, 132)
    shown = [f"{name}={size}" for name, size in plan.workspaces.items()]
    for launch in plan.launches:
        grid, compilation = launch.grid, launch.compilation
        macros = " ".join(f"{name}={value}" for name, value in compilation.macros)
        arguments = " ".join(map(_argument, launch.arguments))
        early = " early" * grid.starts_early
        size = f"{grid.blocks}x{grid.threads} {grid.dynamic_bytes} bytes{early}"
        shown.append(f"{compilation.source}:{compilation.entry} {macros} {size} ({arguments})")
    return "; ".join(shown)


def _argument(one: Any) -> str:
    if isinstance(one, Pointer):
        return one.buffer + (f"/{one.alignment}" if one.alignment > 1 else "")
    if isinstance(one, Tiles):
        b: Boxes = one.boxes
        swizzle = f"{b.swizzle_bytes},{b.promotion_bytes}"
        return f"{one.buffer}[{b.element} {b.extents} {b.box} {b.all_strides} {swizzle}]"
    return str(one)


def _triton(operation: Operation, target: str, configuration: str) -> str:
    architecture = None if target == "cpu" else architecture_of(parse_target(target))
    if reason := provider("triton").why_not(configuration, operation, parse_target(target)):
        return f"refused: {reason}"
    tile = tile_of(Configuration(configuration), operation, architecture)
    made = make_plan(operation, tile, interprets=architecture is None)
    names = ("a", "b", "c", "bias", "m", "k")
    shown = {**made.document(), "boxes": made.boxes, "persistent": made.persistent}
    shown["divisible"] = [names[position] for (position,) in made.attributes(names)]
    return json.dumps({**shown, "inputs": made.inputs}, sort_keys=True)


def _iree(operation: Operation, target: str, configuration: str) -> str:
    """Whether a tile fits; what it becomes is in the functions."""
    return parse_tile(configuration, parse_target(target)).problem(operation) or "fits"


def _cublaslt(operation: Operation) -> str:
    return str(problem_of(operation))


TARGETS = {"mma": "cuda-sm_80", "simt": "cuda-sm_80", "async": "cuda-sm_80", "mfma16": "hip-gfx942"}


def function(name: str) -> str:
    operation, configuration = split_dispatch_name(name)
    endings = (target for ending, target in TARGETS.items() if configuration.endswith(ending))
    target = parse_target(next(endings, "cpu"))
    return dispatch_function(Dispatch(operation, Configuration(configuration), "iree", target))


def answered(file: str) -> str:
    """The file with today's answers to its questions."""
    text = (FOLDER / file).read_text()
    if file.endswith(".mlir"):
        return "\n".join(map(function, parse_functions(text)))
    answer = {"supports.txt": supports, "plans.txt": plan, "names.txt": configuration}[file]
    questions = [line.partition(": ")[0] for line in text.splitlines()]
    return "".join(f"{line}: {answer(*line.split())}\n" for line in questions)


@pytest.mark.parametrize("file", FILES)
def test_providers_decide_as_the_file_states(file: str) -> None:
    expected = (FOLDER / file).read_text()
    assert len(expected.splitlines()) > 100
    assert answered(file).splitlines() == expected.splitlines()


if __name__ == "__main__":
    for name in FILES:
        (FOLDER / name).write_text(answered(name))
