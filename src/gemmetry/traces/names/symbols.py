"""Parses a kernel's name into its function and a short form for display, and makes names mangled by
the Itanium C++ ABI readable, as far as classifying kernels requires.

Source: the grammar of the ABI, https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling. This is
not a full demangler: the function's qualified name is exact, and the rest is a flat list of the
names, numbers and arithmetic types that occur.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmetry.traces.names.words import pattern

_QUALIFIERS = pattern(r"_Z+(?:L(?=\d))?(N)?[rVKRO]*(?:St)?")


_SUBSTITUTION = pattern(r"S[0-9A-Z]*_|St|[CD][0-9]")


_LENGTH = pattern(r"L?(\d{1,4})")


_TOKEN = pattern(
    r"L(?P<type>[a-z])(?P<value>n?\d+)E"
    r"|S[0-9A-Z]*_|S[tabsiod]|T[0-9A-Z]*_|U[lt]|E\d*_|A\d+_"
    r"|(?P<half>DF16[_b])"
    r"|(?P<length>\d{1,4})"
    r"|(?P<literal>L)"
    r"|(?P<other>.)",
    re.DOTALL,
)


_ENUMERATOR = pattern(r"E?(n?\d+)E")


_ARITHMETIC = {"f": "float", "d": "double", "t": "unsigned short"}


_HALF = {"DF16_": "_Float16", "DF16b": "__bf16"}


def readable(mangled: str) -> str:
    """``_ZN2ns4funcILi4EfEEvPT_`` -> ``ns::func<4, float>``; any other text unchanged."""
    start = _QUALIFIERS.match(mangled)
    if not start:
        return mangled
    parts, at = _function(mangled, start.end(), nested=start.group(1) is not None)
    if not parts:
        return mangled
    name = "::".join(parts)
    inside = _arguments(mangled, at) if mangled.startswith("I", at) else []
    return f"{name}<{', '.join(inside)}>" if inside else name


def _function(text: str, at: int, *, nested: bool) -> tuple[list[str], int]:
    """The parts of the qualified name, and the position where they end."""
    parts: list[str] = []
    while True:
        skipped = _SUBSTITUTION.match(text, at)
        length = _LENGTH.match(text, at)
        if skipped and nested:
            at = skipped.end()
        elif length and (nested or not parts):
            name, at = _source_name(text, length)
            if not name:
                return parts, at
            if not name.startswith("_GLOBAL__N_"):
                parts.append(name)
        else:
            return parts, at


def _source_name(text: str, length: re.Match[str]) -> tuple[str, int]:
    end = length.end() + int(length.group(1))
    name = text[length.end() : end]
    return (name, end) if name.isidentifier() else ("", length.end())


def _arguments(text: str, at: int) -> list[str]:
    found: list[str] = []
    in_literal = False
    while at < len(text):
        if in_literal:
            number = _ENUMERATOR.match(text, at)
            if number:
                found.append(number.group(1).replace("n", "-"))
                at, in_literal = number.end(), False
                continue
        token = _TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        if token["type"]:
            found.append(token["value"].replace("n", "-"))
        elif token["half"]:
            found.append(_HALF[token["half"]])
        elif token["length"]:
            name, at = _source_name(text, _LENGTH.match(text, token.start()) or token)
            if name and not name.startswith("_GLOBAL__N_"):
                found.append(name)
        elif token["literal"]:
            in_literal = text[at : at + 1].isupper() or text[at : at + 1].isdigit()
        elif token["other"] in _ARITHMETIC:
            found.append(_ARITHMETIC[token["other"]])
    return found


MOST_CHARACTERS = 8192
"""Number of characters of a name that are read. The longest of 20,000 real names has 5123
characters; a longer one is damaged or malicious."""


HEAD_CHARACTERS = 512


SHORT_CHARACTERS = 60


_BRACKETS = pattern(r"[<>(){}]")


_ANONYMOUS = pattern(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\))::")


_PREFIXES = pattern(r"\A(?:at::native::|at_cuda_detail::)+")


_EMPTY_SCOPES = pattern(r":{3,}")


_HASH = pattern(r"\.(?:intern|llvm)\.[0-9a-fA-F]+\Z")


_WORK = pattern(
    r"(?<![\w:])(?:\w{1,60}::){0,6}"
    r"(\w{1,60}(?:Functor|_functor|Ops|_kernel_cuda|_cuda_kernel|_kernel_impl|_kernel|KernelImpl)"
    r"\w{0,20})"
)


_WRAPPERS = {
    "gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "AUnaryFunctor",
    "BUnaryFunctor", "BinaryFunctor", "multi_tensor_apply_kernel", "UnaryOpFunctor",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Symbol:
    """A parsed kernel name."""

    text: str
    """The readable name on one line, without suffixes that loaders add (``.kd``)."""
    head: str
    """The beginning of `text`: names that encode their parameters do so there."""
    function: str
    """Qualified name without template arguments: ``at::native::reduce_kernel``."""
    base: str
    """Last part of `function`."""
    lower: str
    """The beginning of `function` in lower case."""
    short: str


def read_symbol(name: str) -> Symbol:
    """Parse `name`; of a malicious name only the first `MOST_CHARACTERS` are read."""
    text = _without_marks(_one_line(name[:MOST_CHARACTERS]))
    while text.startswith("void "):
        text = text[5:].lstrip()
    if text.startswith("_Z"):
        plain = _without_marks(readable(text))
        # A function whose own name looks mangled is left unchanged.
        text = text if plain.startswith("_Z") else plain
    while (shorter := _ANONYMOUS.sub("", text)) != text:
        text = shorter
    function = function_of(text)
    return Symbol(
        text=text,
        head=text[:HEAD_CHARACTERS],
        function=function,
        base=function.rpartition("::")[2][:HEAD_CHARACTERS],
        lower=function[:HEAD_CHARACTERS].lower(),
        short=_short(text, function),
    )


def function_of(text: str) -> str:
    """The qualified name of the function in a demangled `text`, without return type, template
    arguments and parameters; a text without brackets is returned unchanged."""
    pieces: list[str] = []
    depth = begin = 0
    for match in _BRACKETS.finditer(text):
        bracket, at = match.group(), match.start()
        if bracket in "<({":
            if depth == 0:
                pieces.append(text[begin:at])
                if bracket == "(" and "".join(pieces).strip():
                    break
            depth += 1
        elif depth and text[at - 1] != "-":
            depth -= 1
            begin = match.end()
    else:
        if depth == 0:
            pieces.append(text[begin:])
    if pieces == [text]:
        return text
    words = "".join(pieces).split()
    return _EMPTY_SCOPES.sub("::", words[-1]).lstrip(":") if words else text


def cut(text: str) -> str:
    """`text` shortened to at most `SHORT_CHARACTERS`."""
    return text if len(text) <= SHORT_CHARACTERS else text[: SHORT_CHARACTERS - 1] + "…"


def settled(short: str) -> str:
    """`short`, shortened until it is its own short name, which only unusual texts require."""
    for _ in range(SHORT_CHARACTERS):
        again = read_symbol(short)
        if again.short == short or again.text != again.function:
            break
        short = again.short
    return short


def _short(text: str, function: str) -> str:
    name = _PREFIXES.sub("", function) or function
    if "<" in text:
        inside = (found[1] for found in _WORK.finditer(text[:3000], len(function)))
        work = next((w for w in inside if w not in _WRAPPERS and w not in name), None)
        if work:
            name = f"{name}[{work}]"
    return cut(name)


def _one_line(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def _without_marks(text: str) -> str:
    while True:
        before = text
        text = text.removesuffix(" (.kd)").removesuffix(".kd")
        if text.endswith("]") and " [clone " in text:
            text = text[: text.rindex(" [clone ")]
        text = text[:-80] + _HASH.sub("", text[-80:])
        if text == before:
            return text
