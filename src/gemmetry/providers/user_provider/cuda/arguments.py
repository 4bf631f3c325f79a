"""The arguments of a user's CUDA kernel, as its manifest lists them, and what they are for an
operation."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from gemmetry.devices.cuda_plans import (
    ADDRESS_ALIGNMENT,
    ELEMENT_BYTES,
    LARGEST_BOX,
    Argument,
    Boxes,
    Pointer,
    Tiles,
)
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.providers.user_provider.cuda.expressions import Expression

TENSORS = {
    "A": "lhs", "B": "rhs", "C": "result", "addend": "addend", "scale_a": "scale_a",
    "scale_b": "scale_b", "bias": "bias", "residual": "residual",
}  # fmt: skip
"""Argument -> role of the tensor whose address it is; null where the operation does not have it."""

FACTORS = ("alpha", "beta")
"""Arguments that are f32 numbers."""

MAP_KEYS = ("map", "box", "swizzle", "promotion")
SWIZZLES = (0, 32, 64, 128)
PROMOTIONS = (0, 64, 128, 256)
"""Bytes that the copy engine permutes within, and that the L2 cache fetches at a time (CUDA Driver
API, CUtensorMapSwizzle and CUtensorMapL2promotion)."""

_FORMATS = {"int": "i", "int64": "q"}
"""Type of a member -> its code in the module struct."""
_LARGEST = {"int": 2**31 - 1, "int64": 2**63 - 1}
_POINTER_BYTES, _NUMBER_BYTES, _MAP_BYTES = 8, 4, 128


@dataclass(frozen=True, slots=True)
class MapArgument:
    """A tensor map, for kernels that fetch boxes by Hopper's copy engine."""

    tensor: str
    """Of :data:`TENSORS`."""
    box: tuple[Expression, ...]
    """Elements along each axis, the contiguous one first."""
    swizzle_bytes: int = 0
    promotion_bytes: int = 0

    @property
    def size(self) -> int:
        """Bytes of the kernel's parameter."""
        return _MAP_BYTES

    def value(self, operation: Operation, names: Mapping[str, int]) -> Argument:
        """Raises:
        ValueError: the copy engine cannot fetch such boxes of the tensor.
        """
        spec = _tensor(operation, TENSORS[self.tensor])
        if spec is None:
            raise ValueError(f"a tensor map of {self.tensor}, which the operation does not have")
        element = "u8" if spec.dtype.storage_bits == 8 else str(spec.dtype)
        if element not in ELEMENT_BYTES:
            raise ValueError(f"there are no tensor maps of {spec.dtype}")
        extents = (*reversed(spec.storage_shape), *(1,) * 5)[: len(self.box)]
        box = tuple(one.value(names) for one in self.box)
        boxes = Boxes(
            element=element, extents=extents, box=box, swizzle_bytes=self.swizzle_bytes,
            promotion_bytes=self.promotion_bytes,
        )  # fmt: skip
        if len(box) < len(spec.storage_shape):
            raise ValueError(f"the box of {self.tensor} lacks an axis: {_times(box)}")
        if any(not 1 <= size <= LARGEST_BOX for size in box):
            raise ValueError(f"the box of {self.tensor} is {_times(box)}; 1 to 256 are possible")
        row = box[0] * ELEMENT_BYTES[element]
        if self.swizzle_bytes and row > self.swizzle_bytes:
            raise ValueError(
                f"a row of the box of {self.tensor} has {row} bytes, and the swizzle "
                f"{self.swizzle_bytes}"
            )
        if any(stride % ADDRESS_ALIGNMENT for stride in boxes.all_strides):
            raise ValueError(
                f"the tensor map of {self.tensor} requires rows of a multiple of "
                f"{ADDRESS_ALIGNMENT} bytes; they have {boxes.all_strides[0]}"
            )
        return Tiles(TENSORS[self.tensor], boxes)


@dataclass(frozen=True, slots=True)
class StructArgument:
    """Integers that are passed by value as one parameter, laid out as in C."""

    members: tuple[tuple[str, Expression], ...]
    """The type, ``int`` or ``int64``, and the value."""

    @property
    def _layout(self) -> str:
        codes = "".join(_FORMATS[kind] for kind, _ in self.members)
        return f"@{codes}0{max(codes, key=struct.calcsize)}"  # the last pads the end, as C does

    @property
    def size(self) -> int:
        """Bytes of the kernel's parameter."""
        return struct.calcsize(self._layout)

    def value(self, operation: Operation, names: Mapping[str, int]) -> Argument:
        """Raises:
        ValueError: a number does not fit its type.
        """
        return struct.pack(
            self._layout, *(number_of(one, names, kind) for kind, one in self.members)
        )


UserArgument = str | Expression | MapArgument | StructArgument
"""A name of :data:`TENSORS` or :data:`FACTORS`, an int, a tensor map or integers by value."""


def argument_bytes(argument: UserArgument) -> int:
    """Bytes of the kernel's parameter."""
    if isinstance(argument, MapArgument | StructArgument):
        return argument.size
    return _POINTER_BYTES if argument in TENSORS else _NUMBER_BYTES


def argument_for(
    argument: UserArgument, operation: Operation, names: Mapping[str, int]
) -> Argument:
    """What is passed for an operation.

    Raises:
        ValueError: an expression has no value or does not fit, or a tensor map is impossible.
    """
    if isinstance(argument, MapArgument | StructArgument):
        return argument.value(operation, names)
    if isinstance(argument, Expression):
        return number_of(argument, names, "int")
    if argument in FACTORS:
        return float(getattr(operation.signature, argument))
    role = TENSORS[argument]
    return None if _tensor(operation, role) is None else Pointer(role)


def number_of(expression: Expression, names: Mapping[str, int], kind: str) -> int:
    """The value of an argument of the type `kind`: ``int`` or ``int64``.

    Raises:
        ValueError: it has none, or it does not fit.
    """
    value = expression.value(names)
    if abs(value) > _LARGEST[kind]:
        raise ValueError(f"the argument {expression.text} does not fit an {kind}")
    return value


def _tensor(operation: Operation, role: str) -> TensorSpec | None:
    tensors = (*operation.inputs, operation.output)
    return next((spec for spec in tensors if spec.role == role), None)


def _times(box: tuple[int, ...]) -> str:
    return " × ".join(map(str, box))
