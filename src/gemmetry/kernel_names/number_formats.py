"""Spellings of number formats in kernel names -> the names of ``domain/dtypes.py``.

Formats that gemmetry does not compute with have names too: ``c64`` and ``c128`` (complex), ``e2m1``
(fp4), ``u8``, ``s64`` ...
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmetry.kernel_names.patterns import pattern

_SPELLINGS: dict[str, str] = {
    "f64": "fp64 double float64 d",
    "f32": "fp32 float float32 s f32_r",
    "tf32": "tfloat32_t tfloat32 xf32",
    "f16": "fp16 half __half half_t float16 _float16 f16_t h",
    "bf16": "bfloat16 bfloat16_t __nv_bfloat16 nv_bfloat16 __hip_bfloat16 hip_bfloat16 __bf16 "
    "bhalf bhalf_t bf16_t rccl_bfloat16",
    "e4m3": "f8e4m3 fp8 f8 e4m3fn float_e4m3_t __nv_fp8_e4m3 float8_e4m3fn __hip_fp8_e4m3 f8_t "
    "fp8_t mxfp8 mxf8 f8_ocp_t fp8e4nv rccl_float8",
    "e5m2": "f8e5m2 bf8 b8 float_e5m2_t __nv_fp8_e5m2 float8_e5m2 __hip_fp8_e5m2 bf8_t bf8_ocp_t "
    "fp8e5 rccl_bfloat8",
    "e4m3fnuz": "f8_fnuz_t float8_e4m3fnuz __hip_fp8_e4m3_fnuz fp8e4b8",
    "e5m2fnuz": "bf8_fnuz_t float8_e5m2fnuz __hip_fp8_e5m2_fnuz fp8e5b16",
    "e2m1": "f4 fp4 mxf4 mxfp4 nvf4 nvfp4 float_e2m1_t f4x2_pk_t __nv_fp4_e2m1",
    "s8": "i8 int8 int8_t char",
    "u8": "uint8 uint8_t",
    "s32": "i32 int32 int32_t int",
    "u32": "uint32 uint32_t",
    "s64": "i64 int64 int64_t long",
    "u64": "uint64 uint64_t",
    "c64": "cf32 c",
    "c128": "cf64 z",
}

FORMATS: Mapping[str, str] = {
    spelling: name for name, texts in _SPELLINGS.items() for spelling in (name, *texts.split())
}

_TYPE = pattern(r"(?<![\w:])(?:\w{1,40}::){0,4}(unsigned short|\w{1,40})(?: const)?(?=\s*[,>*])")


def number_format(spelling: str) -> str | None:
    """gemmetry's name of a format in any library's spelling; None if it is not a format."""
    return FORMATS.get(spelling.rpartition("::")[2].strip().lower())


def format_arguments(text: str, *, bf16_as_ushort: bool = False) -> list[str]:
    """The number formats among the template arguments in `text`, in order.

    Integer types (``int``, ``long`` ...) are left out: in kernel names they are index types.

    Args:
        text: arguments in C++ spelling.
        bf16_as_ushort: Composable Kernel spells bfloat16 ``unsigned short``.
    """
    found = []
    for match in _TYPE.finditer(text):
        spelling = match.group(1)
        if spelling == "unsigned short":
            name = "bf16" if bf16_as_ushort else None
        elif len(spelling) < 3 or spelling in ("int", "long", "char"):
            continue
        else:
            name = number_format(spelling)
        if name is not None:
            found.append(name)
    return found
