"""Types of spec fields: each reads the forms that users write and rejects all others with
gemmetry's messages.

The keys of a spec that set a field of a run each, as fields of a model. Their names, types,
limits, defaults and texts follow from the declarations in ``domain/settings.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from gemmetry.domain import units
from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import GemmetryError, RequestError, UnknownNameError
from gemmetry.domain.operation import EpilogueStep, OperationKind, parse_dtype, parse_scaling
from gemmetry.domain.options import SETTINGS
from gemmetry.domain.settings import Key, RunSettings
from gemmetry.domain.specs.selection import parse_pattern, split_patterns
from gemmetry.domain.specs.shapes import (
    names_file,
    parse_shape,
    parse_sizes,
    parse_sizes_in_order,
    split_list,
)

_RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_CUDA_ARCHITECTURE = r"sm_[0-9]+a?"

LAYOUT_PAIRS = ("tt", "tn", "nt", "nn")


def as_validation_error(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`parse` with its request errors as validation errors, so that all mistakes are collected."""

    @wraps(parse)
    def validate(value: Any) -> Any:
        try:
            return parse(value)
        except GemmetryError as error:
            text = f"{error.message}. {error.hint}" if error.hint else error.message
            raise PydanticCustomError("request", "{text}", {"text": text}) from None

    return validate


def _read_by(parse: Callable[[Any], Any]) -> BeforeValidator:
    return BeforeValidator(as_validation_error(parse))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return split_list(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return [part for item in value for part in split_list(str(item))]
    raise RequestError(f"{_shown(value)} is not a list of names", hint="Write [a, b] or 'a, b'.")


def _items(value: Any, what: str, hint: str, kind: type = object) -> list[Any]:
    """The items of a list, each of a `kind`, or the one text in their place."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, kind) for item in items):
        raise RequestError(f"{_shown(value)} is not {what}", hint=hint)
    return list(items)


_KERNEL = re.compile(r"[\s,]*(.+?:[A-Za-z_]\w*)(?=[\s,]|$)")
"""``file.py:function`` in a list; the path may hold spaces and commas."""


def _kernels(value: Any) -> tuple[str, ...]:
    found: list[str] = []
    for item in _items(value, "a list of kernels", "Write path/to/file.py:function.", str):
        found += _KERNEL.findall(item)
        rest = _KERNEL.sub("", item).strip(" ,")
        found += [rest] if rest else []
    return tuple(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sizes(value: Any) -> tuple[int | str, ...]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    clean: list[int | str] = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float | str):
            raise RequestError(
                f"{_shown(item)} is not a size", hint="Write 256, 64:1024:128 or a list of these."
            )
        if isinstance(item, float):
            if not item.is_integer():
                raise RequestError(f"{item} is not a whole size", hint="Sizes are whole numbers.")
            item = int(item)
        clean.extend(split_list(item) if isinstance(item, str) else [item])
    numbers = [int(i) if isinstance(i, str) and i.isascii() and i.isdigit() else i for i in clean]
    parse_sizes(numbers)
    return tuple(numbers)


def canonical_dtypes(value: Any) -> str:
    """``f32``, or ``f16:f16:f32`` for A, B and C; aliases are accepted too.

    Raises:
        RequestError: not one, two or three formats. UnknownNameError: no such format.
    """
    if isinstance(value, str):
        parts = value.replace(",", ":").split(":")
    elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        parts = list(value)
    else:
        raise RequestError(f"{_shown(value)} is not a dtype", hint="Write f32 or f16:f16:f32.")
    if len(parts) not in (1, 2, 3):
        raise RequestError(
            f"{_shown(value)} names {len(parts)} formats",
            hint="Write one (f32), A:B (e4m3:e5m2) or A:B:C (f16:f16:f32).",
        )
    names = [parse_dtype(part).name for part in parts]
    return names[0] if len(names) == 2 and names[0] == names[1] else ":".join(names)


def _dtypes(value: Any) -> tuple[str, ...]:
    items = split_list(value) if isinstance(value, str) else value
    items = _items(items, "a list of dtypes", "Write [f16, f32].")
    return tuple(dict.fromkeys(map(canonical_dtypes, items)))


def _formats(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_dtype(text).name for text in _texts(value)))


def _one_of(what: str, known: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    def parse(value: Any) -> tuple[str, ...]:
        found = []
        for text in _texts(value):
            name = text.strip().lower().replace("-", "_")
            if name not in known:
                raise UnknownNameError(what, text, known)
            found.append(name)
        return tuple(dict.fromkeys(found))

    return parse


def _epilogues(value: Any) -> tuple[str, ...]:
    items = split_list(value) if isinstance(value, str) else value
    found = []
    for item in _items(items, "a list of epilogues", "Write bias+relu."):
        steps = item.split("+") if isinstance(item, str) else list(item)
        steps = [str(step).strip().lower() for step in steps]
        for step in steps:
            if step not in (*EpilogueStep, "none"):
                raise UnknownNameError("epilogue step", step, [*EpilogueStep, "none"])
        if "none" in steps and len(steps) > 1:
            raise RequestError(
                f"the epilogue {'+'.join(steps)!r} combines none with other steps",
                hint="Write none, bias.",
            )
        found.append("+".join(steps))
    return tuple(dict.fromkeys(found))


def _matrix_sizes(value: Any) -> tuple[str, ...]:
    """Parse shapes; a number is a square, and commas separate sizes, as in the grid of sizes."""
    items = _items(value, "a list of sizes", "Write [256, 512].")
    return _shapes([one.replace(",", " ") if isinstance(one, str) else one for one in items])


def _shapes(value: Any) -> tuple[str, ...]:
    found: list[str] = []
    for item in _items(value, "a list of shapes", "Write [256x256x256]."):
        if isinstance(item, str):
            parts = split_list(item)
            if "," in item and len(parts) in (3, 4) and all(map(str.isdecimal, parts)):
                raise RequestError(
                    f"{item!r} may be one shape or {len(parts)} squares",
                    hint=f"Write {'x'.join(parts)} for the shape, or {' '.join(parts)} (with "
                    "spaces) for the squares.",
                )
            found.extend(f"{part}x{part}x{part}" if part.isdecimal() else part for part in parts)
        elif isinstance(item, int) and not isinstance(item, bool):
            found.append(f"{item}x{item}x{item}")
        elif isinstance(item, list | tuple) and len(item) in (3, 4):
            found.append("x".join(str(size) for size in item))
        elif isinstance(item, Mapping) and set(item) <= {"m", "n", "k", "batch", "b"}:
            batch = item.get("batch", item.get("b"))
            sizes = [item.get(axis, "") for axis in ("m", "n", "k")]
            found.append("x".join(str(s) for s in ([batch, *sizes] if batch else sizes)))
        else:
            raise RequestError(
                f"{_shown(item)} is not a shape",
                hint="Write MxNxK, [m, n, k] or {m: …, n: …, k: …}.",
            )
    for text in found:
        if text[:1] in "-0123456789" and not names_file(text):
            parse_shape(text)
    return tuple(dict.fromkeys(found))


def _patterns(value: Any) -> tuple[str, ...]:
    items = _items(value, "a pattern", "Write a name, with * or re:.", str)
    patterns = [pattern for item in items for pattern in split_patterns(item)]
    for pattern in patterns:
        parse_pattern(pattern)
    return tuple(dict.fromkeys(patterns))


def _devices(value: Any) -> tuple[str, ...]:
    names = [DEVICE_ALIASES.get(text.lower(), text.lower()) for text in _texts(value)]
    for name in names:
        parse_target(name)
    return tuple(dict.fromkeys(names))


DEVICE_ALIASES = {"llvm-cpu": "cpu", "rocm": "hip", "vulkan-spirv": "vulkan", "gpu": "cuda"}
"""Names of IREE's and torch's back ends that users type for a device."""


def _tags(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    pairs = {text: text.partition(":") for text in _texts(value)}
    for text, (key, colon, _) in pairs.items():
        if not colon or not key:
            raise RequestError(f"{text!r} is not a tag", hint="Write column:value,column:value.")
    return {key: item for key, _, item in pairs.values()}


def read_options(value: Any) -> dict[str, str]:
    """``name=value,name=value``, or a mapping.

    Raises:
        RequestError: it begins with a value that has no name.
    """
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    options: dict[str, str] = {}
    name = ""
    # What follows a comma without a name belongs to the value before it: hosts=a,b,time=1:00.
    for text in (value if isinstance(value, str) else ",".join(map(str, value))).split(","):
        key, equals, item = text.strip().partition("=")
        if equals and key:
            name, options[key] = key, item
        elif name:
            options[name] += f",{text}"
        else:
            raise RequestError(f"{text!r} is not an option", hint="Write name=value,name=value.")
    return options


def _duration(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = float(value) if is_number else units.parse_duration_s(str(value))
    if not 0 < seconds < float("inf"):
        raise RequestError(f"the duration {value!r} is not above zero", hint="Write 2s or 500ms.")
    return seconds


def _memory(value: Any) -> int:
    return value if isinstance(value, int) else units.parse_bytes(str(value))


def _any_of(*kinds: str) -> WithJsonSchema:
    item = {"type": ["string", "integer"]}
    forms: dict[str, dict[str, Any]] = {"array": {"type": "array", "items": item}}
    return WithJsonSchema({"anyOf": [forms.get(kind, {"type": kind}) for kind in kinds]})


def _list_of(*items: dict[str, Any]) -> WithJsonSchema:
    """A text, or a list whose items have one of these schemas."""
    return WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": list(items)}}]})


_TEXT = {"type": "string"}
_LIST = _any_of("string", "array")

Sizes = Annotated[tuple[int | str, ...], _read_by(_sizes), _any_of("integer", "string", "array")]
Names = Annotated[tuple[str, ...], _read_by(lambda v: tuple(_texts(v))), _LIST]


def known_names(what: str, known: tuple[str, ...]) -> Any:
    """Type of a list of `known` names, or of any names where none is known; ``all`` selects all.
    `what` describes a name in messages about unknown ones."""

    def parse(value: Any) -> tuple[str, ...]:
        names = _one_of(what, (*known, "all"))(value)
        return known if "all" in names else names

    return Annotated[tuple[str, ...], _read_by(parse), _LIST] if known else Names


def check_known(what: str, known: Collection[str]) -> Callable[[Any], Any]:
    """A validator that refuses a text that is none of the `known` names of `what`."""

    def check(value: str) -> str:
        if value not in known:
            raise UnknownNameError(what, value, known, more=FORMER_NAMES.get((what, value), ""))
        return value

    return as_validation_error(check)


FORMER_NAMES = {
    ("provider", "gluon"): "The Gluon kernel is an example now: --kernel "
    "examples/gluon_gemm.py:matmul.",
}
"""Kind and name of what no longer exists -> what replaces it."""


Kernels = Annotated[tuple[str, ...], _read_by(_kernels), _LIST]
Dtypes = Annotated[
    tuple[str, ...],
    _read_by(_dtypes),
    _list_of(_TEXT, {"type": "array", "items": _TEXT, "maxItems": 3}),
]
Formats = Annotated[tuple[str, ...], _read_by(_formats), _LIST]
Layouts = Annotated[tuple[str, ...], _read_by(_one_of("layout pair", LAYOUT_PAIRS)), _LIST]
_KINDS = (*OperationKind, "all")
Kinds = Annotated[tuple[str, ...], _read_by(_one_of("operation kind", _KINDS)), _LIST]
Format = Annotated[str, _read_by(lambda value: parse_dtype(str(value)).name)]


def _sizes_together(count: int, form: str) -> Callable[[Any], tuple[int, ...]]:
    def parse(value: Any) -> tuple[int, ...]:
        items = [value] if isinstance(value, int | str) else value
        text = ",".join(map(str, items)) if isinstance(items, list | tuple) else ""
        sizes = parse_sizes_in_order(text) if text else ()
        if len(sizes) != count:
            raise RequestError(f"{_shown(value)} is not {form}", hint=f"Write {count} sizes.")
        return sizes

    return parse


FourSizes = Annotated[tuple[int, ...], _read_by(_sizes_together(4, "M,N,K,L")), _LIST]
TwoSizes = Annotated[tuple[int, ...], _read_by(_sizes_together(2, "M,N")), _LIST]
Scaling = Annotated[str, _read_by(lambda value: str(parse_scaling(str(value))))]
Epilogues = Annotated[tuple[str, ...], _read_by(_epilogues), _LIST]
_INTEGER = {"type": "integer"}
_SHAPE_LIST = _list_of(
    _TEXT,
    {"type": "array", "items": _INTEGER},
    {"type": "object", "additionalProperties": _INTEGER},
)
Shapes = Annotated[tuple[str, ...], _read_by(_shapes), _SHAPE_LIST]
MatrixSizes = Annotated[tuple[str, ...], _read_by(_matrix_sizes), _SHAPE_LIST]
Patterns = Annotated[tuple[str, ...], _read_by(_patterns), _LIST]
Devices = Annotated[tuple[str, ...], _read_by(_devices), _LIST]
Tags = Annotated[dict[str, str], _read_by(_tags), _any_of("string", "object")]
Options = Annotated[dict[str, str], _read_by(read_options), _any_of("string", "object")]
Duration = Annotated[float, _read_by(_duration), _any_of("number", "string")]
Memory = Annotated[int, _read_by(_memory), _any_of("integer", "string")]


def _of_form(pattern: str, what: str, hint: str) -> tuple[BeforeValidator, WithJsonSchema]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise RequestError(f"{_shown(value)} is not {what}", hint=hint)
        return value

    return _read_by(parse), WithJsonSchema({**_TEXT, "pattern": f"^{pattern}$"})


_NAME_HINT = (
    "Use up to 64 letters, digits, dots, dashes and underscores, and start with a letter or digit."
)
RunName = Annotated[str, *_of_form(_RUN_NAME, "a name", _NAME_HINT)]
CudaArchitecture = Annotated[
    str, *_of_form(_CUDA_ARCHITECTURE, "a CUDA architecture", "Write sm_90.")
]


_NOTATIONS = {"TIME": Duration, "BYTES": Memory}


def run_fields() -> dict[str, Any]:
    """Key -> its type and its field, as ``pydantic.create_model`` takes them."""
    hints = get_type_hints(RunSettings)
    return {
        key.name: (_type_of(key, hints[key.setting]), Field(key.value, description=key.text))
        for key in SETTINGS
    }


def _type_of(key: Key, hint: Any) -> Any:
    """Type in a spec of a setting whose values have the type `hint`."""
    parts = [part for part in get_args(hint) if part is not NoneType]
    is_optional = key.is_optional or NoneType in get_args(hint)
    if get_origin(hint) is Mapping:
        if key.metavar == "TIME":
            return dict.__class_getitem__((parts[0], Duration))
        return Options if key.metavar == "NAME=VALUE" else Tags
    if get_origin(hint) is tuple:
        return known_names(key.name.removesuffix("s"), key.names)
    kind: Any = _NOTATIONS.get(key.metavar, parts[0] if is_optional and parts else hint)
    if key.choices:
        kind = Literal[key.choices]
    elif key.names:
        kind = Annotated[kind, AfterValidator(check_known(key.name, key.names))]
    if key.limits:
        kind = Annotated[kind, Field(**key.limits)]
    return kind | None if is_optional else kind


def setting_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Field of :class:`RunSettings` -> its value by the keys of `spec`: of a mapping the default
    with the given parts, of nothing the default."""
    found = {}
    for key in SETTINGS:
        value, default = spec[key.name], getattr(RunSettings(), key.setting)
        if isinstance(value, Mapping):
            value = {**default, **value}
        found[key.setting] = default if value is None else value
    return found
