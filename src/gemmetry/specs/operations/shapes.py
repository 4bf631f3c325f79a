"""Shapes as people write them: ``768x512x1024``, presets by name, and files of shapes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gemmetry.domain.errors import NameSyntaxError, RequestError, SpecError, UnknownNameError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import MatmulShape, Shape
from gemmetry.specs.operations.ranges import split_list
from gemmetry.specs.text_file import read_text_file

_HINT = (
    "Write MxNxK (768x512x1024), BxMxNxK, NxHxWxC_RxSxF for conv2d, a preset's name, "
    "or a file (.csv, .yaml, .txt)."
)


@dataclass(frozen=True, slots=True)
class Preset:
    """Shapes with a name and the reason they are worth measuring."""

    shapes: tuple[str, ...]
    source: str


_LLAMA3 = "Llama 3 (arXiv 2407.21783, table 3)"
_DEEPSEEK = "DeepSeek-V3 (arXiv 2412.19437, section 4.2)"

PRESETS: dict[str, Preset] = {
    "first": Preset(
        ("256x256x256", "512x512x512", "257x129x65"),
        "A first run on a CPU: two squares, and one odd shape that no tile divides.",
    ),
    "first_gpu": Preset(
        ("1024x1024x1024", "4096x4096x4096", "1023x511x257"),
        "A first run on a GPU: two squares, and one odd shape that no tile divides.",
    ),
    "squares": Preset(
        tuple(f"{size}x{size}x{size}" for size in (256, 512, 1024, 2048, 4096, 8192)),
        "Powers of two from 256 to 8192, the usual first plot.",
    ),
    "llm": Preset(
        (
            "2048x6144x4096",
            "2048x28672x4096",
            "2048x4096x14336",
            "16x28672x4096",
            "2048x8192x28672",
            "4096x7168x2048",
            "4096x24576x1536",
        ),
        f"{_LLAMA3}: 8B fused QKV, gate+up and down at 2048 tokens, gate+up when decoding 16 "
        f"tokens, 70B down; {_DEEPSEEK}: an expert's down and the query's up projection at 4096 "
        "tokens.",
    ),
    "legacy": Preset(
        ("256x512x128", "2560x2560x2560", "3456x1024x2048"),
        "The matmul shapes that the IREE dispatch profiler generated when none was given.",
    ),
    "conv": Preset(
        ("1x56x56x64_3x3x64_pad1x1", "1x58x58x64_3x3x128"),
        "ResNet-50's 3x3 convolution at 56x56 (arXiv 1512.03385, table 1); one without padding.",
    ),
}

LEGACY_SPLIT_K_SHAPE = "128x128x12288"
"""The dispatch profiler's split-k shape, with slices 2, 4 and 16 (18 does not divide it)."""
LEGACY_SPLIT_K_SLICES = (2, 4, 16, 18)
LEGACY_BATCH_SHAPE = "16x512x64x512"
"""The dispatch profiler's batch_matmul shape, BxMxNxK."""


def parse_shape(text: str) -> Shape:
    """``MxNxK``, ``BxMxNxK`` or ``NxHxWxC_RxSxF[_strideAxB][_padAxB]``.

    Raises:
        RequestError: not of these forms, or a size of zero or below.
    """
    name = text.strip().lower()
    rank = name.split("_")[0].count("x") + 1
    if "_" in name:
        prefix, suffix = "conv2d", "f32nhwc_f32hwcf_f32nhwc"
    else:
        prefix, suffix = ("batch_matmul" if rank == 4 else "matmul"), "f32t_f32t_f32t"
    try:
        return parse_operation(f"{prefix}_{name}_{suffix}").shape
    except NameSyntaxError as error:
        problem = error.message.split(": ", 1)[1]
        raise RequestError(f"cannot read the shape {text!r}: {problem}", hint=_HINT) from None


def print_shape(shape: Shape) -> str:
    """The inverse of :func:`parse_shape`."""
    if isinstance(shape, MatmulShape):
        sizes = (*((shape.batch,) if shape.batch > 1 else ()), *shape[:3])
        return "x".join(str(size) for size in sizes)
    s = shape
    return (
        f"{s.n}x{s.h}x{s.w}x{s.c}_{s.r}x{s.s}x{s.f}"
        f"_stride{s.stride_h}x{s.stride_w}_pad{s.pad_h}x{s.pad_w}"
    )


def parse_shapes(items: Iterable[str], *, base: Path | None = None) -> tuple[Shape, ...]:
    """Shapes of a list whose items are shapes, presets or files, duplicates dropped.

    Files are relative to `base` (the folder of the spec that names them).

    Raises:
        RequestError: an item is none of these. SpecError: mistakes in a file, each with its line.
    """
    shapes: dict[Shape, None] = {}
    for item in items:
        for part in split_list(item):
            shapes.update(dict.fromkeys(_parse_item(part, base)))
    return tuple(shapes)


def _parse_item(item: str, base: Path | None) -> Sequence[Shape]:
    key = item.lower().replace("-", "_")
    if key in PRESETS:
        return [parse_shape(text) for text in PRESETS[key].shapes]
    if item.startswith("@") or Path(item).suffix.lower() in _READERS:
        path = Path(item.removeprefix("@"))
        return read_shapes(base / path if base is not None else path)
    if not any(character.isdigit() for character in item):
        raise UnknownNameError("preset of shapes", item, PRESETS)
    return [parse_shape(item)]


def read_shapes(path: Path) -> list[Shape]:
    """Shapes of a file: CSV with the columns m, n, k and batch (or those without a header),
    YAML (a list of ``MxNxK`` texts or of mappings), or text with one shape a line, ``#`` comments.

    Raises:
        RequestError: the file cannot be read or holds no shape. SpecError: each line that is wrong.
    """
    text = read_text_file(path, "the file of shapes", hint=_HINT)
    reader = _READERS.get(path.suffix.lower(), _text_rows)
    shapes: list[Shape] = []
    mistakes: list[str] = []
    for line, row in reader(text, path):
        try:
            shapes.append(parse_shape(row))
        except RequestError as error:
            mistakes.append(f"{path}:{line}:1: {error.message}")
    if mistakes:
        raise SpecError(mistakes, hint=_HINT)
    if not shapes:
        raise RequestError(f"{path} holds no shape", hint=_HINT)
    return shapes


def _text_rows(text: str, _path: Path) -> list[tuple[int, str]]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if content:
            rows.append((number, "x".join(split_list(content))))
    return rows


def _csv_rows(text: str, path: Path) -> list[tuple[int, str]]:
    reader = csv.reader(text.splitlines())
    rows: list[tuple[int, str]] = []
    header: list[str] = []
    for cells in _csv_lines(reader, path):
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not rows and not header and not cells[0][:1].isdigit():
            header = [cell.lower() for cell in cells]
            missing = [name for name in ("m", "n", "k") if name not in header]
            if missing and "shape" not in header:
                raise SpecError(
                    [f"{path}:{reader.line_num}:1: no column {', '.join(missing)}"], hint=_HINT
                )
            continue
        rows.append((reader.line_num, _csv_shape(header, cells)))
    return rows


def _csv_lines(reader: Any, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:  # a cell beyond the reader's limit, as of a file without lines
        raise SpecError([f"{path}:{reader.line_num}:1: not CSV: {error}"], hint=_HINT) from error


def _csv_shape(header: list[str], cells: list[str]) -> str:
    if not header:
        return "x".join(cell for cell in cells if cell)
    named = dict(zip(header, cells, strict=False))
    if "shape" in named:
        return named["shape"]
    return _join(named.get("batch") or named.get("b") or "1", *(named.get(d, "") for d in "mnk"))


def _join(batch: str, m: str, n: str, k: str) -> str:
    return f"{m}x{n}x{k}" if batch == "1" else f"{batch}x{m}x{n}x{k}"


def _yaml_rows(text: str, path: Path) -> list[tuple[int, str]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise SpecError([f"{path}:{place}: not YAML: {error.problem}"], hint=_HINT) from error
    except yaml.YAMLError as error:
        raise SpecError([f"{path}:1:1: not YAML: {error}"], hint=_HINT) from error
    if root is None:
        return []
    if not isinstance(root, yaml.SequenceNode):
        raise SpecError([f"{path}:1:1: a file of shapes is a list"], hint=_HINT)
    return [(node.start_mark.line + 1, _yaml_shape(node)) for node in root.value]


def _yaml_shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        named = {str(key.value).lower(): str(value.value) for key, value in node.value}
        batch = named.get("batch") or named.get("b") or "1"
        return _join(batch, *(named.get(d, "") for d in "mnk"))
    if isinstance(node, yaml.SequenceNode):
        return "x".join(str(item.value) for item in node.value)
    return str(node.value)


_READERS: dict[str, Callable[[str, Path], list[tuple[int, str]]]] = {
    ".csv": _csv_rows,
    ".yaml": _yaml_rows,
    ".yml": _yaml_rows,
    ".txt": _text_rows,
}
