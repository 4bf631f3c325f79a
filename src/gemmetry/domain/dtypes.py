"""Number formats of operands, results and accumulators.

Significand and exponent facts: IEEE 754-2019 (f64, f32, f16), the bfloat16 and TF32 definitions
of Intel and NVIDIA, "FP8 Formats for Deep Learning" (arXiv 2209.05433) for e4m3 and e5m2, and the
OCP Microscaling Formats (MX) Specification 1.0, section 5, for e2m1 and e8m0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmetry.domain.errors import UnknownNameError


@dataclass(frozen=True, slots=True, eq=False)  # There is one object per format.
class DType:
    """A number format.

    ``significand_bits`` counts the hidden bit (f32: 24), so the unit roundoff of
    round-to-nearest is ``2**-significand_bits``; it is 0 for integers.
    """

    name: str
    storage_bits: int
    significand_bits: int
    maximum: float
    """Largest finite value."""
    description: str

    @property
    def is_integer(self) -> bool:
        return self.significand_bits == 0

    @property
    def is_fp8(self) -> bool:
        return self.storage_bits == 8 and self.significand_bits > 1

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element (tf32 is stored in 4); 1 for e2m1, two of which share a byte
        on a GPU."""
        return max(self.storage_bits // 8, 1)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest; 0 for integers."""
        return 0.0 if self.is_integer else 2.0**-self.significand_bits

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """Copies and unpickled objects are the one object of the format."""
        return parse_dtype, (self.name,)


F64 = DType("f64", 64, 53, 1.7976931348623157e308, "IEEE 754 binary64")
F32 = DType("f32", 32, 24, 3.4028234663852886e38, "IEEE 754 binary32")
TF32 = DType("tf32", 32, 11, 3.4011621342146535e38, "10-bit mantissa, stored as binary32")
F16 = DType("f16", 16, 11, 65504.0, "IEEE 754 binary16")
BF16 = DType("bf16", 16, 8, 3.3895313892515355e38, "bfloat16: binary32's exponent, 7-bit mantissa")
E4M3 = DType("e4m3", 8, 4, 448.0, "fp8 E4M3 (OCP, finite only)")
E5M2 = DType("e5m2", 8, 3, 57344.0, "fp8 E5M2 (OCP)")
E4M3FNUZ = DType("e4m3fnuz", 8, 4, 240.0, "fp8 E4M3 of AMD gfx942: no infinity, one zero")
E5M2FNUZ = DType("e5m2fnuz", 8, 3, 57344.0, "fp8 E5M2 of AMD gfx942: no infinity, one zero")
E2M1 = DType("e2m1", 4, 2, 6.0, "fp4 E2M1 (OCP, finite only): 0, 0.5, 1, 1.5, 2, 3, 4, 6")
E8M0 = DType("e8m0", 8, 1, 2.0**127, "scale factors (OCP): powers of two from 2^-127, and NaN")
S8 = DType("s8", 8, 0, 127.0, "signed 8-bit integer")
S32 = DType("s32", 32, 0, 2147483647.0, "signed 32-bit integer")

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (F64, F32, TF32, F16, BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E2M1, E8M0, S8, S32)
}

DTYPE_ALIASES: dict[str, str] = {
    "fp64": "f64", "float64": "f64", "double": "f64",
    "fp32": "f32", "float32": "f32", "float": "f32",
    "fp16": "f16", "float16": "f16", "half": "f16",
    "bfloat16": "bf16",
    "fp8": "e4m3", "fp8e4m3": "e4m3", "float8_e4m3fn": "e4m3", "f8e4m3fn": "e4m3",
    "fp8e5m2": "e5m2", "float8_e5m2": "e5m2", "f8e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz",
    "float8e4m3fn": "e4m3", "float8e5m2": "e5m2",
    "fp4": "e2m1", "float4e2m1fn": "e2m1", "float4_e2m1fn": "e2m1", "f4e2m1fn": "e2m1",
    "float8e8m0fnu": "e8m0", "float8_e8m0fnu": "e8m0", "f8e8m0fnu": "e8m0", "ue8m0": "e8m0",
    "int8": "s8", "i8": "s8", "int32": "s32", "i32": "s32",
}  # fmt: skip


def parse_dtype(text: str) -> DType:
    """The format named `text`, by its name here or an alias (``fp16``, ``bfloat16``, ``int8``).

    Raises:
        UnknownNameError: no such format.
    """
    key = text.strip().lower()
    key = DTYPE_ALIASES.get(key, key)
    try:
        return DTYPES[key]
    except KeyError:
        raise UnknownNameError("dtype", text, [*DTYPES, *DTYPE_ALIASES]) from None


def default_accumulator(lhs: DType, rhs: DType, result: DType) -> DType:
    """The accumulator of an operation whose name does not specify one: the widest in common use.

    It is f64 for f64 inputs, s32 for integers and f32 otherwise, as in cuBLAS, MKL and XLA.
    """
    if lhs.is_integer:
        return S32
    return F64 if F64 in (lhs, rhs, result) else F32


def default_result(lhs: DType, rhs: DType) -> DType:
    """The result type used when a request names only the inputs: s8→s32, fp8 and fp4→bf16,
    tf32→f32."""
    if lhs.is_integer:
        return S32
    if lhs is TF32 or rhs is TF32:
        return F32
    if min(lhs.storage_bits, rhs.storage_bits) <= 8:
        return BF16
    return lhs if lhs.storage_bits >= rhs.storage_bits else rhs
