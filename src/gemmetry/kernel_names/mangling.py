"""Makes names mangled by the Itanium C++ ABI readable, as far as classifying kernels requires.

Source: the grammar of the ABI, https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling. This is
not a full demangler: the function's qualified name is exact, and the rest is a flat list of the
names, numbers and arithmetic types that occur.
"""

from __future__ import annotations

import re

from gemmetry.kernel_names.patterns import pattern

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
