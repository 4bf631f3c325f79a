"""Mutants whose bug is in how a kernel is launched through torch: what is kept between launches, on
which stream they run, and whose memory holds the results. CUDA and Triton share them; Triton
mutants are built here, compiled on a GPU and interpreted on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from gemmetry.domain.contracts import Buffer, Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.triton_provider.provider import require_interpreter
from gemmetry.selftest.provider import Mutant, TritonRecipe

Tensors = Sequence[torch.Tensor]
Submit = Callable[[Tensors, torch.Tensor], Any]
"""(inputs, output): submits one launch to the current stream; some return the tensor that holds the
result."""
Wrapper = Callable[[Submit], Submit]


class TorchMutant:
    """A mutant in CUDA C++ or Triton, prepared for one shape; `submit` submits one launch to the
    current stream."""

    def __init__(self, slug: str, device: Device, facts: BuildFacts, submit: Submit) -> None:
        self.device = device
        self.facts = facts
        self._launch, self.writes_output = wrapped(slug, submit)

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        return self._launch(inputs, output)

    def close(self) -> None:
        del self._launch
        self.device.release()


def kept(change: Callable[[Submit, list[Any], Tensors, torch.Tensor], object]) -> Wrapper:
    """Wrap a launch in a change that gets it, and a list that persists between launches."""
    return lambda submit: partial(change, submit, [])


def answered_by(key_of: Callable[[Tensors], object]) -> Wrapper:
    """Returns a cached result if the keys of the inputs are the same."""

    def answered(submit: Submit, answers: list[Any], inputs: Tensors, output: torch.Tensor) -> None:
        key = key_of(inputs)
        for known, answer in answers:
            if known == key:
                output.copy_(answer)
                return
        submit(inputs, output)
        answers.append((key, output.clone()))

    return kept(answered)


def both_sums(inputs: Tensors) -> bytes:
    """The sums of all rows and columns."""
    sums = [tensor.double().sum(axis) for tensor in inputs for axis in (0, 1)]
    return bytes(torch.cat(sums).cpu().numpy())


def last_by_a(submit: Submit, last: list[Any], inputs: Tensors, output: torch.Tensor) -> None:
    """Returns its last result again if A is the same."""
    if last and torch.equal(last[0], inputs[0]):
        output.copy_(last[1])
        return
    submit(inputs, output)
    last[:] = [inputs[0].clone(), output.clone()]


def packs_by_version(
    submit: Submit, packed: list[Any], inputs: Tensors, output: torch.Tensor
) -> None:
    """Keeps B packed (here: a copy) by its address and version."""
    known, key = dict(packed), (inputs[1].data_ptr(), inputs[1]._version)
    if key not in known:
        known[key] = inputs[1].clone()
        packed.append((key, known[key]))
    submit([inputs[0], known[key], *inputs[2:]], output)


def copies_in_graphs(
    submit: Submit, last: list[Any], inputs: Tensors, output: torch.Tensor
) -> None:
    """Computes, except when a launch is captured into a graph: then it copies the last result."""
    is_captured = output.is_cuda and torch.cuda.is_current_stream_capturing()
    if last and is_captured:
        output.copy_(last[0])
        return
    submit(inputs, output)
    if not is_captured:
        last[:] = [output.clone()]


def on_default_stream(submit: Submit, _: list[Any], inputs: Tensors, output: torch.Tensor) -> None:
    """Launches on the default stream, whichever stream is current."""
    with torch.cuda.stream(torch.cuda.default_stream(output.device)):
        submit(inputs, output)


def forked(
    submit: Submit, streams: list[Any], inputs: Tensors, output: torch.Tensor, joined: bool = False
) -> None:
    """Launches on a stream that waits for the current one, but the current one does not wait for
    it. Right if `joined`: then it does."""
    current = torch.cuda.current_stream(output.device)
    if not streams:
        streams.append(torch.cuda.Stream(output.device))
    streams[0].wait_stream(current)
    with torch.cuda.stream(streams[0]):
        submit(inputs, output)
    if joined:
        current.wait_stream(streams[0])


def wrong_once_in_300(
    submit: Submit, calls: list[Any], inputs: Tensors, output: torch.Tensor
) -> None:
    """Negates one element of the result in every 300th launch."""
    submit(inputs, output)
    calls.append(None)
    if len(calls) % 300 == 0:
        output.view(-1)[-1].neg_()


def skips_calls(submit: Submit, calls: list[Any], inputs: Tensors, output: torch.Tensor) -> None:
    """Does nothing at every eighth call."""
    calls.append(None)
    if len(calls) % 8:
        submit(inputs, output)


def in_turn(
    submit: Submit, own: list[Any], inputs: Tensors, output: torch.Tensor, count: int
) -> torch.Tensor:
    """Returns results in `count` buffers of its own, in turn."""
    result = torch.empty_like(output) if len(own) < count else own.pop(0)
    own.append(result)
    submit(inputs, result)
    return result


def in_new_memory(submit: Submit, _: list[Any], inputs: Tensors, output: torch.Tensor) -> object:
    """Right: every result has newly allocated memory."""
    result = torch.empty_like(output)
    submit(inputs, result)
    return result


GIVEN: Mapping[str, Wrapper] = {
    "cache_by_pointer": answered_by(lambda inputs: [one.data_ptr() for one in inputs]),
    "skips_calls": kept(skips_calls),
    # The addresses of the inputs and torch's counts of their changes.
    "cache_by_version": answered_by(lambda inputs: [(x.data_ptr(), x._version) for x in inputs]),
    "cache_by_both_sums": answered_by(both_sums),
    "last_answer_by_a": kept(last_by_a),
    "packs_by_version": kept(packs_by_version),
    "copies_in_graphs": kept(copies_in_graphs),
    "default_stream": kept(on_default_stream),
    "wrong_once_in_300": kept(wrong_once_in_300),
    "fork_not_joined": kept(forked),
    "fork_not_joined_short": kept(forked),
    "fork_joined": kept(partial(forked, joined=True)),
}
"""Slug -> how it changes a launch that writes to the given output."""

RETURNED: Mapping[str, Wrapper] = {
    "two_result_buffers": kept(partial(in_turn, count=2)),
    "three_result_buffers": kept(partial(in_turn, count=3)),
    "new_result_buffer": kept(in_new_memory),
}
"""Slug -> how it changes a launch that returns its result."""

SLUGS = frozenset({*GIVEN, *RETURNED})


def wrapped(slug: str, submit: Submit) -> tuple[Submit, bool]:
    """The launch of the mutant with this slug, and whether it writes to the given output; `submit`
    unchanged if the slug has no bug here."""
    if slug in RETURNED:
        return RETURNED[slug](submit), False
    launch = GIVEN[slug](submit) if slug in GIVEN else submit

    def given(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        launch(inputs, output)
        return output

    return given, True


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
