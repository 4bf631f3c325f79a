"""A GEMM in numpy, written like a GPU kernel: tiles, a ring of buffers along K, and an epilogue.

Every part in which kernels go wrong is a method of its own, a stage. A mutant changes a stage, as a
subclass or as an entry of a table ``KERNELS``, made by :func:`given`, :func:`result`,
:func:`instead` or :func:`where`. Unchanged, the emulator is correct. It does one thing after
another where a GPU does many at once. A race is therefore emulated by a launch in which one piece
of work randomly happens too early or too late (:class:`Racing`). What happens differs from launch
to launch and from process to process, as it does on a device.

It computes matmuls of all kinds, formats, layouts and modifiers, but no convolutions. Shapes are
small, so that hundreds of launches take seconds, and mostly multiples of the tile, so that a bug in
tails shows only where a check provokes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.contracts import Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.operation import F64, DType, EpilogueStep, Operation, Scaling
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostBuffer, HostDevice
from gemmetry.numerics.references import gelu, logical_tensors, to_logical
from gemmetry.numerics.storage import numpy_dtype, quantize, to_float32, to_float64
from gemmetry.selftest.provider import HostRecipe, Mutant

Array = np.ndarray[Any, np.dtype[Any]]

FRAGMENT_ROWS = 8
"""The rows of the smallest piece that a matrix instruction assigns to one warp (PTX ISA,
mma.m16n8k16: a thread holds elements of two groups of eight rows)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile of C: where it starts, and its number in the order of the launch."""

    number: int
    batch: int
    row: int
    column: int


class Problem:
    """The buffers of one launch as arrays with a leading batch axis."""

    def __init__(
        self, operation: Operation, inputs: Sequence[HostBuffer], output: HostBuffer
    ) -> None:
        roles = (spec.role for spec in operation.inputs)
        self.buffers = dict(zip(roles, inputs, strict=True))
        self.output = output
        views = logical_tensors(operation, inputs)
        widen = to_float64 if operation.signature.accumulator is F64 else to_float32
        self.a: Array = batched(widen(views["lhs"]))
        """(batch, M, K) in float32 or float64, as registers would hold it."""
        self.b: Array = batched(widen(views["rhs"]))
        """(batch, K, N)."""
        self.c: Array = batched(to_logical(output, operation.output))
        """(batch, M, N), the output itself."""
        self.tensors = {role: view for role, view in views.items() if role not in ("lhs", "rhs")}


def batched(view: Array) -> Array:
    return view if view.ndim == 3 else view[np.newaxis]


def through(values: Array, dtype: DType) -> Array:
    """`values` rounded to another format, in float32."""
    return to_float32(quantize(values, dtype))


STEP_PARTS = ("fill", "read", "load_a", "load_b", "multiply_add")
"""The methods of :class:`TiledGemm` that are part of a step of the loop along K."""


class TiledGemm:
    """One operation, ready to launch. It keeps what a GPU keeps between launches: shared memory,
    caches and workspaces."""

    writes_output = True
    stages = 3
    """Buffers in the ring along K."""
    processors = 4
    """Multiprocessors, each of which computes one tile after another."""
    raster_group = 2
    """Rows of tiles that are computed together, which helps the cache."""
    one_by_one: ClassVar[bool] = False
    """Whether the steps along K are done one at a time, through the ring. A class that changes one
    of their parts (:data:`STEP_PARTS`) works in this way. Any other computes all steps of a tile in
    one numpy call, which takes a tenth of the time for large K."""
    alpha_behind = True
    """Whether the epilogue multiplies by alpha."""
    addend_behind = True
    """Whether the epilogue adds beta · C."""

    def __init_subclass__(cls) -> None:
        changes = any(getattr(cls, part) is not getattr(TiledGemm, part) for part in STEP_PARTS)
        cls.one_by_one = cls.one_by_one or changes

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        self.operation = operation
        self.signature = operation.signature
        self.m, self.n, self.k, self.batch = operation.matmul_shape
        tile_m, tile_n, self.tile_k = tile
        self.tile_m, self.tile_n = fitted(tile_m, self.m), fitted(tile_n, self.n)
        self.tiles_m, self.tiles_n = -(-self.m // self.tile_m), -(-self.n // self.tile_n)
        self.tile_count = self.batch * self.tiles_m * self.tiles_n
        self.step_count = -(-self.k // self.tile_k)
        self.accumulator = numpy_dtype(self.signature.accumulator)
        self.is_integer = self.signature.accumulator.is_integer
        is_double = self.signature.accumulator is F64
        self.load_dtype = np.dtype(np.float64 if is_double else np.float32)
        self.ring_a = np.zeros((self.stages, self.tile_m, self.tile_k), self.load_dtype)
        self.ring_b = np.zeros((self.stages, self.tile_k, self.tile_n), self.load_dtype)
        self.staging = np.zeros((self.tile_m, self.tile_n), numpy_dtype(self.signature.result))
        self.launches = 0
        self.chance = random.Random()
        """Random generator seeded by the system, because on a device this is a matter of timing."""
        self.prepare()

    def prepare(self) -> None:
        """Work of the host once per shape, such as allocating workspaces."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        """One launch; returns the buffer that holds the result."""
        self.launches += 1
        self.problem = problem = Problem(self.operation, inputs, output)
        with np.errstate(all="ignore"):
            problem.a, problem.b = self.seen_a(problem.a), self.seen_b(problem.b)
            self.before()
            self.run_grid()
            self.after()
        return output

    def before(self) -> None:
        """Work of the host before the kernel, such as clearing counters and workspaces."""

    def seen_a(self, a: Array) -> Array:
        """(batch, M, K) as the kernel sees it."""
        return a

    def seen_b(self, b: Array) -> Array:
        """(batch, K, N) as the kernel sees it."""
        return b

    def past(self, role: str, alignment: int) -> int:
        """The elements of an input from the last multiple of `alignment` bytes to its start."""
        buffer = self.problem.buffers[role]
        return int(buffer.ctypes.data % alignment // buffer.itemsize)

    def after(self) -> None:
        """Work still in progress when the last tile is done."""

    # Scheduling -------------------------------------------------------------------------------

    def run_grid(self) -> None:
        for processor in range(self.processors):
            self.compute_all(self.work_of(processor))

    def compute_all(self, numbers: Iterable[int]) -> None:
        """Compute tiles one after another, in any thread."""
        with np.errstate(all="ignore"):
            for number in numbers:
                self.compute(self.tile_at(number))

    def work_of(self, processor: int) -> Iterable[int]:
        """The numbers of the tiles that a processor computes: the loop of a persistent kernel."""
        return range(processor, self.tile_count, self.processors)

    def tile_at(self, number: int) -> Tile:
        """The tile with this number: batch by batch, and within one in groups of `raster_group`
        rows of tiles."""
        batch, rest = divmod(number, self.tiles_m * self.tiles_n)
        group, within = divmod(rest, self.raster_group * self.tiles_n)
        first = group * self.raster_group
        height = min(self.tiles_m - first, self.raster_group)
        row, column = first + within % height, within // height
        return Tile(number, batch, row * self.tile_m, column * self.tile_n)

    def compute(self, tile: Tile) -> None:
        self.epilogue(tile, self.mainloop(tile, range(self.step_count)))

    # The loop along K -------------------------------------------------------------------------

    def mainloop(self, tile: Tile, steps: range) -> Array:
        """The sum over `steps` of tile_k products each, of which stages - 1 are loaded ahead."""
        if not self.one_by_one and self.accumulator in (self.load_dtype, np.int32):
            return self.all_steps(tile, steps)
        accumulator = self.zeros()
        for step in steps[: self.stages - 1]:
            self.fill(tile, step)
        for step in steps:
            ahead = step + self.stages - 1
            if ahead < steps.stop:
                self.fill(tile, ahead)
            accumulator = self.multiply_add(accumulator, *self.read(tile, step))
        return accumulator

    def all_steps(self, tile: Tile, steps: range) -> Array:
        """Products in the loop's order, from the data that the loop would load."""
        first, last = steps.start * self.tile_k, steps.stop * self.tile_k
        a = self.problem.a[tile.batch, tile.row :, first:last][: self.tile_m]
        b = self.problem.b[tile.batch, first:last, tile.column :][:, : self.tile_n]
        (rows, k), columns = a.shape, b.shape[1]
        count, rest = divmod(k, self.tile_k)
        whole = k - rest
        products = self.product(
            a[:, :whole].reshape(rows, count, self.tile_k).swapaxes(0, 1),
            b[:whole].reshape(count, self.tile_k, columns),
        )
        accumulator = self.zeros()
        total = accumulator[:rows, :columns]
        np.add.reduce(products, axis=0, out=total, initial=0)
        if rest:
            total += self.product(a[:, whole:], b[whole:])
        return accumulator

    def zeros(self) -> Array:
        """The sums of a tile before the loop."""
        return np.zeros((self.tile_m, self.tile_n), self.accumulator)

    def added(self, total: Array, tile: Tile, steps: Iterable[int]) -> Array:
        """`total` and the products of these steps, one after another, without the ring."""
        for step in steps:
            total = self.multiply_add(total, self.load_a(tile, step), self.load_b(tile, step))
        return total

    def fill(self, tile: Tile, step: int) -> None:
        """The producer: copies from global memory into the ring."""
        slot = step % self.stages
        self.ring_a[slot] = self.load_a(tile, step)
        self.ring_b[slot] = self.load_b(tile, step)

    def read(self, tile: Tile, step: int) -> tuple[Array, Array]:
        """The consumer: the stage that holds `step`."""
        slot = step % self.stages
        return self.ring_a[slot], self.ring_b[slot]

    def load_a(self, tile: Tile, step: int) -> Array:
        """(tile_m, tile_k) of A, with zeros outside of it."""
        first = step * self.tile_k
        part = self.problem.a[tile.batch, tile.row :, first:][: self.tile_m, : self.tile_k]
        return padded(part, (self.tile_m, self.tile_k))

    def load_b(self, tile: Tile, step: int) -> Array:
        """(tile_k, tile_n) of B, with zeros outside of it."""
        first = step * self.tile_k
        part = self.problem.b[tile.batch, first:, tile.column :][: self.tile_k, : self.tile_n]
        return padded(part, (self.tile_k, self.tile_n))

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        """accumulator + a @ b in the accumulator's format."""
        return np.asarray(accumulator + self.product(a, b), dtype=self.accumulator)

    def product(self, a: Array, b: Array) -> Array:
        """a @ b. The sums of one step's s8 products stay below 2^24 (tile_k at most 512), so that
        float32 holds them exactly."""
        product = a @ b
        return product.astype(np.int32) if self.is_integer else product

    # The epilogue -----------------------------------------------------------------------------

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        values = accumulator[: self.m - tile.row, : self.n - tile.column]
        block = self.rounded(self.fused(tile, self.scaled(tile, values)))
        self.store(tile, self.staged(tile, block))

    def scaled(self, tile: Tile, values: Array) -> Array:
        """alpha · scale_a · scale_b · values + beta · C; factors of blocks are in the values
        (:class:`gemmetry.selftest.scale.BlockScaled`)."""
        s = self.signature
        if s.scaling is not Scaling.NONE and s.blocks is None:
            values = values * self.scale_a(tile) * self.scale_b(tile)
        dtype = values.dtype.type
        if self.alpha_behind:
            values = values * dtype(self.alpha())
        if self.addend_behind and s.beta != 0:
            values = values + dtype(self.beta()) * self.tensor("addend", tile, values.dtype)
        return values

    def alpha(self) -> float:
        """The factor of the product."""
        return self.signature.alpha

    def beta(self) -> float:
        """The factor of C."""
        return self.signature.beta

    def tensor(self, role: str, tile: Tile, dtype: np.dtype[np.generic]) -> Array:
        """The part of C or of the residual that the tile covers."""
        whole = batched(self.problem.tensors[role])
        return np.asarray(whole[tile.batch, self.rows(tile), self.columns(tile)].astype(dtype))

    def scale_a(self, tile: Tile) -> Array:
        """(rows, 1) or (1,)."""
        return self.scales("scale_a", (tile.batch, self.rows(tile)))

    def scale_b(self, tile: Tile) -> Array:
        """(1, columns) or (1,)."""
        return self.scales("scale_b", (tile.batch, slice(None), self.columns(tile)))

    def scales(self, role: str, place: tuple[int | slice, ...]) -> Array:
        """The factors of one operand at a place, or the one of the whole tensor."""
        scales = self.problem.tensors[role]
        return batched(scales)[place] if self.signature.scaling is Scaling.ROW else scales

    def fused(self, tile: Tile, values: Array) -> Array:
        """The steps that are fused after the product."""
        for step in self.signature.epilogue:
            match step:
                case EpilogueStep.BIAS:
                    bias = self.problem.tensors["bias"][self.columns(tile)]
                    values = values + bias.astype(values.dtype)
                case EpilogueStep.RESIDUAL:
                    values = values + self.tensor("residual", tile, values.dtype)
                case EpilogueStep.RELU:
                    values = self.relu(values)
                case EpilogueStep.GELU:
                    values = self.gelu(values)
        return values

    def relu(self, values: Array) -> Array:
        return np.maximum(values, 0)

    def gelu(self, values: Array) -> Array:
        return gelu(to_float64(values)).astype(values.dtype)

    def rounded(self, values: Array) -> Array:
        """`values` in the result's format, rounded to nearest once."""
        return values if self.is_integer else quantize(values, self.signature.result)

    def staged(self, tile: Tile, block: Array) -> Array:
        """`block` as it is stored in shared memory, from which whole rows are stored."""
        height, width = block.shape
        self.staging[:height, :width] = block
        return self.staging[:height, :width]

    def store(self, tile: Tile, block: Array) -> None:
        self.there(tile)[...] = block

    # Helpers ----------------------------------------------------------------------------------

    def there(self, tile: Tile) -> Array:
        """A view of the part of the output that the tile covers."""
        return self.problem.c[tile.batch, self.rows(tile), self.columns(tile)]

    def rows(self, tile: Tile) -> slice:
        """The rows of C that the tile covers."""
        return slice(tile.row, min(tile.row + self.tile_m, self.m))

    def columns(self, tile: Tile) -> slice:
        return slice(tile.column, min(tile.column + self.tile_n, self.n))

    def tiles(self) -> Iterator[Tile]:
        return (self.tile_at(number) for number in range(self.tile_count))


def padded(part: Array, shape: tuple[int, int]) -> Array:
    """`part` in the upper left corner of zeros of `shape`; `part` itself if it has that shape."""
    if part.shape == shape:
        return part
    block = np.zeros(shape, part.dtype)
    block[: part.shape[0], : part.shape[1]] = part
    return block


class ReturnsOwn(TiledGemm):
    """An emulator that returns the result in memory of its own."""

    writes_output = False


class Racing(TiledGemm):
    """An emulator in which something randomly happens too early in one place of a launch."""

    odds = 0.5
    """The probability that it happens in a launch."""

    def before(self) -> None:
        super().before()
        self.happens = self.chance.random() < self.odds
        self.victim = self.chance.randrange(self.tile_count)
        """The number of the tile where it happens."""
        self.victim_step = self.chance.randrange(self.step_count)
        pieces = max(1, min(self.tile_m, self.m) // FRAGMENT_ROWS)
        first = FRAGMENT_ROWS * self.chance.randrange(pieces)
        self.fragment = slice(first, first + FRAGMENT_ROWS)
        """The rows of that tile."""

    def struck(self, tile: Tile, step: int | None = None) -> bool:
        """Whether the bug happens here."""
        here = self.happens and tile.number == self.victim
        return here and (step is None or step == self.victim_step)


def fitted(tile: int, size: int) -> int:
    """The edge of a tile: `tile`, or the next multiple of two fragments if the problem is smaller,
    so that little is computed in vain."""
    step = 2 * FRAGMENT_ROWS
    return min(tile, -(-size // step) * step)


class HostExecutable:
    """A mutant on prepared host buffers."""

    def __init__(self, kernel: TiledGemm, facts: BuildFacts) -> None:
        self.device: Device = HostDevice()
        self.facts = facts
        self.writes_output = kernel.writes_output
        self.kernel = kernel

    def run(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        """One launch; returns what the mutant returns."""
        return self.kernel.launch(inputs, output)

    def close(self) -> None:
        """Does nothing: numpy frees everything."""


def build(item: Mutant, dispatch: Dispatch) -> Executable:
    """The mutant `item` for the dispatch's operation, ready to launch."""
    kernel = kernel_of(item)(dispatch.operation, item.tile)
    kind = "a deliberate bug" if item.is_bug else "correct but tricky"
    return HostExecutable(
        kernel, BuildFacts(declared=item.declared, notes=(f"{kind}: {item.bug}",))
    )


def kernel_of(item: Mutant) -> type[TiledGemm]:
    """The class of the emulator that a mutant on the host is built from."""
    recipe: HostRecipe = item.recipe
    module_name, _, name = recipe.source.partition(".")
    module = import_module(f"{__package__}.{module_name}")
    made: Kernels = getattr(module, "KERNELS", {})
    kernel: type[TiledGemm] = made.get(name) or getattr(module, name)
    return type(name, (kernel,), dict(recipe.attributes)) if recipe.attributes else kernel


Kernels = dict[str, type[TiledGemm]]
"""Name -> class that differs from another in one method, its stage."""

Change = Callable[..., Any]
"""Called with the emulator `g` and the arguments of the method that it changes; where a module's
own function makes the class, with what that function says."""


def given(stage: str, change: Change, base: type[TiledGemm] = TiledGemm) -> type[TiledGemm]:
    """A class whose `stage` computes as in `base`, with what the change returns as its last
    argument."""
    method = getattr(base, stage)
    return instead(stage, lambda g, *args: method(g, *args[:-1], change(g, *args)), base)


def result(stage: str, change: Change, base: type[TiledGemm] = TiledGemm) -> type[TiledGemm]:
    """A class whose `stage` changes the result of `base`; the change gets it before the
    arguments."""
    method = getattr(base, stage)
    return instead(stage, lambda g, *args: change(g, method(g, *args), *args), base)


def where(stage: str, change: Change, base: type[TiledGemm] = TiledGemm) -> type[TiledGemm]:
    """A class that does `stage` as `base` does, but only where the change is true."""
    method = getattr(base, stage)
    return instead(stage, lambda g, *args: method(g, *args) if change(g, *args) else None, base)


def instead(stage: str, change: Change, base: type[TiledGemm] = TiledGemm) -> type[TiledGemm]:
    """A class whose `stage` is the change."""
    return type(f"Changed{base.__name__}", (base,), {stage: change})
