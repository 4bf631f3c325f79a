"""Reads sizes as users write them: ``256``, ``64:1024:128``, ``log2:64:8192``, lists and mixes.

Sizes in what libraries write while a program runs: torch's TunableOp results, and the command
lines and profiles that hipBLASLt and rocBLAS log.

All write the sizes of column-major products. Such a product of m, n, k is in memory the row-major
one of M = n, N = m, K = k, which is the form of torch's results and of gemmetry's.

Reads shapes as users write them: ``768x512x1024``, presets by name, and files of shapes.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import yaml

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import (
    MOST_MISTAKES,
    EmptySelectionError,
    NameSyntaxError,
    RequestError,
    SpecError,
    UnknownNameError,
)
from gemmetry.domain.opening import read_text_file
from gemmetry.domain.operation import MatmulShape, Shape
from gemmetry.domain.specs.yaml_text import yaml_nodes

MAX_VALUES = 10_000_000
"""More values than this in one axis are treated as a typing mistake, before they use memory."""

MAX_SIZE = 10**12 - 1
"""Largest size that an operation's name can hold (docs/names.md: 12 digits)."""

_SIZE_HINT = (
    "Write 256, 64:1024:128 (end excluded), log2:64:8192 (end included) or a list of these."
)


def split_list(text: str) -> list[str]:
    """The parts of a comma- or space-separated list, blanks dropped."""
    return text.replace(",", " ").split()


def parse_sizes(items: Iterable[int | str] | int | str) -> tuple[int, ...]:
    """All sizes that `items` name, in the order written, without duplicates.

    ``start:stop:step`` excludes the end, as in the dispatch profiler; ``start:stop`` has step 1;
    ``log2:start:stop`` doubles from the start and includes the end.

    Raises:
        RequestError: an item cannot be read, or a size or step is zero or negative.
        EmptySelectionError: a range, or all of `items`, is empty.
    """
    if isinstance(items, int | str):
        items = [items]
    values: dict[int, None] = {}
    for item in items:
        for part in split_list(item) if isinstance(item, str) else [item]:
            values.update(dict.fromkeys(_parse_range(part)))
    if not values:
        raise EmptySelectionError("no size is given", hint=_SIZE_HINT)
    return tuple(values)


def parse_sizes_in_order(text: str) -> tuple[int, ...]:
    """``8192,8192,1024,1`` -> the sizes, in order and with duplicates.

    Raises:
        RequestError: a part is not a size.
    """
    return tuple(_check_size(_integer(part, text), text) for part in split_list(text))


def _parse_range(item: int | str) -> Iterable[int]:
    if isinstance(item, int):
        return [_check_size(item, str(item))]
    head, *tail = item.split(":")
    if head.strip().lower() == "log2" and len(tail) == 2:
        return _doubling(item, *(_integer(part, item) for part in tail))
    if len(tail) > 2:
        raise RequestError(f"{item!r} is not a size or a range of sizes", hint=_SIZE_HINT)
    numbers = [_integer(part, item) for part in (head, *tail)]
    if not tail:
        return [_check_size(numbers[0], item)]
    start, stop, step = (*numbers, 1)[:3]
    _check_size(start, item)
    if step < 1:
        raise RequestError(f"the range {item!r} has the step {step}", hint="Steps start at 1.")
    values = range(start, stop, step)
    if not values:
        raise EmptySelectionError(
            f"the range {item!r} is empty: its end {stop} is excluded",
            hint="Write start:stop:step with stop above start.",
        )
    _check_size(values[-1], item)
    if len(values) > MAX_VALUES:
        raise RequestError(
            f"the range {item!r} contains {len(values):,} sizes (at most {MAX_VALUES:,})",
            hint="Give a larger step.",
        )
    return values


def _doubling(item: str, start: int, stop: int) -> list[int]:
    _check_size(start, item)
    if stop < start:
        raise EmptySelectionError(
            f"the range {item!r} is empty: it ends below its start",
            hint="Write log2:start:stop with stop at or above start.",
        )
    _check_size(stop, item)
    return [start << power for power in range((stop // start).bit_length())]


def _integer(text: str, item: str) -> int:
    text = text.strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        raise RequestError(f"{item!r} is not a size or a range of sizes", hint=_SIZE_HINT)
    return int(text)


def _check_size(value: int, item: str) -> int:
    if value < 1:
        raise RequestError(
            f"the size {value} in {item!r} is below 1", hint="Sizes are whole numbers from 1 up."
        )
    if value > MAX_SIZE:
        raise RequestError(
            f"the size {value} in {item!r} is larger than a name can hold",
            hint=f"The largest size is {MAX_SIZE}.",
        )
    return value


_COMMAND = re.compile(r"\b(?:hipblaslt|rocblas)-bench\s(?P<options>.*)")
"""Command lines of a library's benchmark (hipBLASLt: ``HIPBLASLT_LOG_MASK=32``; rocBLAS:
``ROCBLAS_LAYER=2``)."""
_CALL = re.compile(r"-\s*\{.*?\b(?:rocblas_)?function:\s*(?P<function>[^,}]+),(?P<named>.*)\}")
"""Calls of a profile (hipBLASLt: ``HIPBLASLT_LOG_MASK=64``; rocBLAS: ``ROCBLAS_LAYER=4``)."""
_NAMED = re.compile(r"\b(M|N|K|batch_count):\s*([^\s,}]+)")
_PRODUCT = re.compile("gemm|matmul")
_PARAMETERS = re.compile(
    r"[nt]{2}_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)(?:_b_(?P<batch>\d+))?(?:_.*)?", re.ASCII
)
"""``nt_25088_4096_64`` in lower case, with ``_b_16`` for a batch and, in later versions, more
behind it (torch, ``TunableGemm.h``, ``Signature``)."""
_OPTIONS = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "--batch_count": "batch", "-f": "function", "--function": "function",
}  # fmt: skip
"""Options of hipblaslt-bench and rocblas-bench."""


def tunable_op_row(cells: Sequence[str]) -> str | Mapping[str, str]:
    """The sizes in a row of TunableOp's file, by name; the text itself where there are none."""
    text = cells[1] if len(cells) > 1 else ""
    match = _PARAMETERS.fullmatch(text.lower())
    return _row_major(match.groupdict()) if match else text or cells[0]


def logged_rows(text: str) -> list[tuple[int, Mapping[str, str]]] | None:
    """The sizes of each matrix product that hipBLASLt or rocBLAS logged, by name; other lines are
    left out. None where the text is no log of theirs."""
    found: list[tuple[int, Mapping[str, str]]] = []
    is_log = False
    for number, line in enumerate(text.splitlines(), 1):
        given: dict[str, str]
        if command := _COMMAND.search(line):
            try:
                words = shlex.split(command["options"])
            except ValueError:  # An apostrophe of something else that was logged.
                words = command["options"].split()
            given = {_OPTIONS[one]: value for one, value in pairwise(words) if one in _OPTIONS}
        elif call := _CALL.search(line):
            given = {"function": call["function"]}
            for name, value in _NAMED.findall(call["named"]):
                given["batch" if name == "batch_count" else name.lower()] = value
        else:
            continue
        is_log = True
        if _PRODUCT.search(given.pop("function", "matmul")):
            found.append((number, _row_major(given)))
    return found if is_log else None


def _row_major(sizes: Mapping[str, str | None]) -> Mapping[str, str]:
    given = {name: size for name, size in sizes.items() if size is not None}
    if "m" in given and "n" in given:
        given["m"], given["n"] = given["n"], given["m"]
    return given


_HINT = (
    "Write MxNxK (768x512x1024), BxMxNxK, NxHxWxC_RxSxF for conv2d, a preset's name, "
    "or a file (.csv, .yaml, .txt, .log)."
)


_LONGEST = 80
"""Maximum length of a shape, and of an invalid text in an error."""


PRESETS: dict[str, tuple[str, ...]] = {
    # A first run on a CPU: two squares, and one odd shape that no tile divides.
    "first": ("256x256x256", "512x512x512", "257x129x65"),
    # The same on a GPU.
    "first_gpu": ("1024x1024x1024", "4096x4096x4096", "1023x511x257"),
    # Powers of two, the usual first plot.
    "squares": tuple(f"{size}x{size}x{size}" for size in (256, 512, 1024, 2048, 4096, 8192)),
    # Llama 3 (arXiv 2407.21783, table 3): 8B fused QKV, gate+up and down at 2048 tokens, gate+up
    # when decoding 16 tokens, 70B down. DeepSeek-V3 (arXiv 2412.19437, section 4.2): an expert's
    # down and the query's up projection at 4096 tokens.
    "llm": (
        "2048x6144x4096", "2048x28672x4096", "2048x4096x14336", "16x28672x4096",
        "2048x8192x28672", "4096x7168x2048", "4096x24576x1536",
    ),
    # The matmul shapes that the IREE dispatch profiler generated by default.
    "legacy": ("256x512x128", "2560x2560x2560", "3456x1024x2048"),
    # ResNet-50's 3x3 convolution at 56x56 (arXiv 1512.03385, table 1); one without padding.
    "conv": ("1x56x56x64_3x3x64_pad1x1", "1x58x58x64_3x3x128"),
}  # fmt: skip
"""Name -> shapes that are worth measuring."""

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
        if len(text) > _LONGEST:
            raise RequestError(f"{text[:_LONGEST]!r}… is not a shape", hint=_HINT) from None
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
        return [parse_shape(text) for text in PRESETS[key]]
    if names_file(item, base):
        path = Path(item.removeprefix("@"))
        return read_shapes(base / path if base is not None else path)
    if not any(character.isdigit() for character in item):
        raise UnknownNameError("preset of shapes", item, PRESETS)
    return [parse_shape(item)]


def names_file(item: str, base: Path | None = None) -> bool:
    """Whether an item of a list is a file of shapes: marked by ``@``, with a suffix of such files,
    in a folder, or there and no shape."""
    if item.startswith("@") or "/" in item or Path(item).suffix.lower() in _READERS:
        return True
    try:
        parse_shape(item)
    except RequestError:
        return ((base or Path()) / item).is_file()
    return False


def read_shapes(path: Path) -> list[Shape]:
    """Shapes of a file: CSV with the columns m, n, k and batch (or those without a header), or of
    TunableOp; YAML (a list of ``MxNxK`` texts or of mappings); text with one shape per line and
    ``#`` comments. A log of hipBLASLt or rocBLAS may have any suffix.

    Raises:
        RequestError: the file cannot be read or holds no shape. SpecError: each line that is wrong.
    """
    text = read_text_file(path, "the file of shapes", hint=_HINT)
    reader = _READERS.get(path.suffix.lower(), _text_rows)
    shapes: list[Shape] = []
    mistakes: list[str] = []
    logged = logged_rows(text)
    for line, row in reader(text, path) if logged is None else logged:
        if len(mistakes) > MOST_MISTAKES:
            break
        try:
            shapes.append(parse_shape(row if isinstance(row, str) else _named_shape(row)))
        except RequestError as error:
            mistakes.append(f"{path}:{line}:1: {error.message}")
    if mistakes:
        raise SpecError(mistakes, hint=_HINT)
    if not shapes:
        raise RequestError(f"{path} contains no shapes", hint=_HINT)
    return shapes


_Row: TypeAlias = str | Mapping[str, str]
"""A shape as text, or the texts of its sizes by name."""


def _text_rows(text: str, _path: Path) -> list[tuple[int, _Row]]:
    rows: list[tuple[int, _Row]] = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if content:
            sizes = split_list(content)
            rows.append((number, "x".join(sizes) if all(map(str.isdecimal, sizes)) else content))
    return rows


def _csv_rows(text: str, path: Path) -> list[tuple[int, _Row]]:
    reader = csv.reader(text.splitlines())
    rows: list[tuple[int, _Row]] = []
    header: list[str] = []
    while True:
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return rows
        except csv.Error as error:  # a cell beyond the reader's limit, as of a file without lines
            where = f"{path}:{reader.line_num}:1"
            raise SpecError([f"{where}: not CSV: {error}"], hint=_HINT) from error
        # TunableOp's rows with this word are about versions.
        if not any(cells) or cells[0].startswith("#") or cells[0] == "Validator":
            continue
        if "TunableOp" in cells[0]:
            rows.append((reader.line_num, tunable_op_row(cells)))
            continue
        if not rows and not header and not cells[0][:1].isdigit():
            header = [cell.lower() for cell in cells]
            missing = [name for name in ("m", "n", "k") if name not in header]
            if missing and "shape" not in header:
                raise SpecError(
                    [f"{path}:{reader.line_num}:1: no column {', '.join(missing)}"], hint=_HINT
                )
            continue
        named = dict(zip(header, cells, strict=False))
        rows.append((reader.line_num, named or "x".join(filter(None, cells))))


def _named_shape(named: Mapping[str, str]) -> str:
    """The text of a shape whose sizes are given by name.

    Raises:
        RequestError: a size is missing or not a whole number.
    """
    if "shape" in named:
        return named["shape"]
    sizes = {"batch": named.get("batch") or named.get("b") or "1"}
    sizes |= {name: named.get(name, "") for name in "mnk"}
    problems = [
        f"{name} is {value!r}, which is not a whole number" if value else f"{name} is missing"
        for name, value in sizes.items()
        if not value.isdecimal()
    ]
    if problems:
        shown = ", ".join(f"{name} {value}" for name, value in named.items() if value)
        raise RequestError(f"cannot read the shape ({shown}): {'; '.join(problems)}", hint=_HINT)
    batch, m, n, k = sizes.values()
    return f"{m}x{n}x{k}" if batch == "1" else f"{batch}x{m}x{n}x{k}"


def _yaml_rows(text: str, path: Path) -> list[tuple[int, _Row]]:
    root = yaml_nodes(text, str(path))
    if root is None:
        return []
    if not isinstance(root, yaml.SequenceNode):
        raise SpecError([f"{path}:1:1: a file of shapes is a list"], hint=_HINT)
    return [(node.start_mark.line + 1, _yaml_shape(node)) for node in root.value]


def _yaml_shape(node: yaml.Node) -> _Row:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value).lower(): str(value.value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return "x".join(str(item.value) for item in node.value)
    return str(node.value)


_READERS: dict[str, Callable[[str, Path], list[tuple[int, _Row]]]] = {
    ".csv": _csv_rows, ".yaml": _yaml_rows, ".yml": _yaml_rows, ".txt": _text_rows,
    ".log": _text_rows,
}  # fmt: skip
