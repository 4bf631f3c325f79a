"""Mutants on the host: kernels that cache results or operands under too weak a key, kernels that
use the previous contents of the output, and correct kernels that resemble them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest.emulator import (
    Array,
    Kernels,
    ReturnsOwn,
    Tile,
    TiledGemm,
    given,
    instead,
    where,
)

HONEST_CALLS = 96
"""Calls that a kernel computes before it starts to return cached results: more than verification
makes of the dispatch's own shape at any level, and fewer than ``many_calls`` makes of one tile (a
test compares them)."""

BURST_S = 1e-3
"""A call that follows the previous one within this time is assumed to belong to a benchmark."""


class KeepsAnswers(TiledGemm):
    """Returns an earlier result if the key is the same."""

    def prepare(self) -> None:
        self.answers: dict[Hashable, Array] = {}

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        """The key of the inputs; here their whole contents, which is correct."""
        return tuple(buffer.tobytes() for buffer in inputs)

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        key = self.key(inputs, output)
        if key in self.answers and self.reuses_answer():
            output[...] = self.answers[key]
            return output
        super().launch(inputs, output)
        self.answers[key] = output.copy()
        return output

    def reuses_answer(self) -> bool:
        return True


def by_each(
    digest: Callable[[HostBuffer], Hashable], base: type[KeepsAnswers] = KeepsAnswers
) -> type[KeepsAnswers]:
    """A class whose key consists of a digest of each input."""
    return type("ByEach", (base,), {"key": lambda g, inputs, output: tuple(map(digest, inputs))})


class ByBothSums(KeepsAnswers):
    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        wide = [to_float64(buffer) for buffer in inputs]
        return tuple(np.nansum(array, axis=axis).tobytes() for array in wide for axis in (0, -1))


class KeepsLastAnswer(ByBothSums):
    """Keeps only one result."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        key = self.key(inputs, output)
        self.answers = {known: answer for known, answer in self.answers.items() if known == key}
        return super().launch(inputs, output)


class ByEdges(KeepsAnswers):
    """Compares what numpy prints of a matrix: three rows and columns at each edge."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        edges = (np.s_[:3], np.s_[-3:], np.s_[..., :3], np.s_[..., -3:])
        return tuple(buffer[edge].tobytes() for buffer in inputs for edge in edges)


class ByAllAddresses(KeepsAnswers):
    """Caches by the addresses of inputs and output, so that it always computes for a new output."""

    def prepare(self) -> None:
        super().prepare()
        self.held: list[HostBuffer] = []

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        self.held.append(output)  # Kept, so that no other buffer gets the address.
        return (output.ctypes.data, *(buffer.ctypes.data for buffer in inputs))


class AfterManyCalls(KeepsAnswers):
    """Computes its first calls, and returns the last result for all others."""

    calls = 0

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        self.calls += 1
        return 0

    def reuses_answer(self) -> bool:
        return self.calls > HONEST_CALLS


class NotesWhenCallsEnd(TiledGemm):
    """Knows whether a call follows the previous one at once, as in a timed loop."""

    burst_s = BURST_S
    ended_s = 0.0

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        result = super().launch(inputs, output)
        self.ended_s = time.perf_counter()
        return result

    def follows_at_once(self) -> bool:
        return time.perf_counter() - self.ended_s < self.burst_s


class InBursts(NotesWhenCallsEnd, ByAllAddresses):
    def reuses_answer(self) -> bool:
        return self.follows_at_once()


class InBurstsAfterManyCalls(NotesWhenCallsEnd, AfterManyCalls):
    """Computes after a pause, and returns the last result if a call follows the previous one at
    once."""

    def reuses_answer(self) -> bool:
        return super().reuses_answer() and self.follows_at_once()


class PacksOnce(TiledGemm):
    """Stores B in the order in which it is read, once for each address."""

    def prepare(self) -> None:
        self.packed: dict[Hashable, HostBuffer] = {}

    def key(self, buffer: HostBuffer) -> Hashable:
        return int(buffer.ctypes.data)

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        packed = self.packed.setdefault(self.key(inputs[1]), inputs[1].copy())
        return super().launch([inputs[0], packed, *inputs[2:]], output)


class PacksByContent(PacksOnce):
    """Right: packs again whenever any byte of B changes."""

    def key(self, buffer: HostBuffer) -> Hashable:
        self.packed.clear()
        return buffer.tobytes()


def looks_computed(values: Array) -> bool:
    """Whether these could be results: finite numbers that are not all the same."""
    wide = to_float64(values)
    return bool(np.isfinite(wide).all()) and float(np.ptp(wide)) > 0


class SkipsComputedOutput(TiledGemm):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return output if looks_computed(output) else super().launch(inputs, output)


class AddsToComputedOutput(TiledGemm):
    """Adds to the previous contents of the output if they look like partial sums."""

    def store(self, tile: Tile, block: Array) -> None:
        there = self.there(tile)
        super().store(tile, block + there if looks_computed(there) else block)


class SkipsOwnResult(TiledGemm):
    def prepare(self) -> None:
        self.stored: dict[int, bytes] = {}

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        address = output.ctypes.data
        if self.stored.get(address) == output.tobytes():
            return output
        super().launch(inputs, output)
        self.stored[address] = output.tobytes()
        return output


class ReturnsInTurn(ReturnsOwn):
    """Returns results in a few buffers of its own, in turn."""

    count = 2

    def prepare(self) -> None:
        self.own: list[HostBuffer] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if len(self.own) < self.count:
            self.own.append(np.empty_like(output))
        return super().launch(inputs, self.own[self.launches % self.count])


class KeepsWorkspace(TiledGemm):
    """Right: accumulates in memory that it allocates once and clears at each launch."""

    def prepare(self) -> None:
        self.workspace = np.empty((self.tile_count, self.tile_m, self.tile_n), self.accumulator)

    def before(self) -> None:
        self.workspace[...] = 0

    def mainloop(self, tile: Tile, steps: range) -> Array:
        sums: Array = self.workspace[tile.number]
        sums += super().mainloop(tile, steps)
        return sums


class KeepsPlan(TiledGemm):
    """Right: computes the order of tiles once for a shape, and compiles its code at the first
    launch."""

    def prepare(self) -> None:
        self.plans: dict[tuple[int, ...], list[Tile]] = {}
        self.code: Callable[[Array, Array, Array], Array] | None = None

    def tile_at(self, number: int) -> Tile:
        shape = (self.m, self.n, self.batch)
        if shape not in self.plans:
            self.plans[shape] = [super(KeepsPlan, self).tile_at(i) for i in range(self.tile_count)]
        return self.plans[shape][number]

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if self.code is None:
            made: dict[str, Any] = {}
            exec("def step(accumulator, a, b):\n    return accumulator + a @ b\n", made)
            self.code = made["step"]
        return np.asarray(self.code(accumulator, a, b), dtype=self.accumulator)


KERNELS: Kernels = {
    # Right: every result has newly allocated memory.
    "returns_new_buffer": given("launch", lambda g, _, c: np.empty_like(c), ReturnsOwn),
    "by_content_of_a": instead("key", lambda g, inputs, output: inputs[0].tobytes(), KeepsAnswers),
    "by_content_of_b": instead("key", lambda g, inputs, output: inputs[1].tobytes(), KeepsAnswers),
    # Compares all of A and B, but not what is added to their product.
    "by_operands": instead(
        "key",
        lambda g, inputs, output: tuple(buffer.tobytes() for buffer in inputs[:2]),
        KeepsAnswers,
    ),
    # Sums of integers are exact in any order, so this is a checksum.
    "by_sums": by_each(lambda buffer: float(np.nansum(to_float64(buffer)))),
    "by_line_sums": by_each(lambda buffer: np.nansum(to_float64(buffer), axis=-1).tobytes()),
    # Compares whole lines of 256 bytes and ignores a remainder after them; here the
    # last line counts as such a remainder.
    "by_whole_lines": by_each(lambda one: one.tobytes()[: (one.nbytes - 1) // 256 * 256]),
    "by_magnitudes": by_each(lambda buffer: np.abs(to_float64(buffer)).tobytes()),
    "by_samples": by_each(lambda buffer: buffer.reshape(-1)[::7].tobytes()),
    "by_first_rows": by_each(lambda buffer: buffer[:8].tobytes()),
    "by_pointer": by_each(lambda buffer: int(buffer.ctypes.data)),
    # The first elements identify inputs of a fixed seed.
    "by_first_elements": by_each(lambda buffer: buffer.reshape(-1)[:16].tobytes()),
    # Its key is the sum of all numbers of each input.
    "by_plain_sums": by_each(lambda buffer: float(to_float64(buffer).sum())),
    # Its key is every 97th number of each input.
    "by_rare_samples": by_each(lambda buffer: buffer.reshape(-1)[::97].tobytes()),
    "last_by_content_of_a": instead(
        "key", lambda g, inputs, output: inputs[0].tobytes(), KeepsLastAnswer
    ),
    "packs_by_checksum": instead(
        "key", lambda g, buffer: float(np.nansum(to_float64(buffer))), PacksOnce
    ),
    "skips_computed_tiles": where("store", lambda g, tile, _: not looks_computed(g.there(tile))),
}
