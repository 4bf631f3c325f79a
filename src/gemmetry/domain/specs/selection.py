"""Selection of dispatches: globs, regular expressions and ``key=value`` on columns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gemmetry.domain.dispatch import NamedDispatch, parse_operation, split_dispatch_name
from gemmetry.domain.errors import NameSyntaxError, RequestError, UnknownNameError
from gemmetry.domain.operation import Operation, OperationKind, operation_name
from gemmetry.domain.specs.shapes import parse_sizes

_Test = Callable[[str, str, Operation], bool]
_Get = Callable[[str, str, Operation], str]

_INTEGERS: dict[str, Callable[[Operation], int]] = {
    "m": lambda o: o.matmul_shape.m,
    "n": lambda o: o.matmul_shape.n,
    "k": lambda o: o.matmul_shape.k,
    "batch": lambda o: o.matmul_shape.batch,
    "split_k_slices": lambda o: o.signature.split_k_slices,
}

_TEXTS: dict[str, _Get] = {
    "dispatch": lambda p, n, o: n,
    "provider": lambda p, n, o: p,
    "operation": lambda p, n, o: operation_name(o),
    "configuration": lambda p, n, o: n[len(operation_name(o)) + 1 :],
    "kind": lambda p, n, o: str(o.kind),
    "lhs_dtype": lambda p, n, o: o.signature.lhs.name,
    "rhs_dtype": lambda p, n, o: o.signature.rhs.name,
    "dtype": lambda p, n, o: o.signature.lhs.name,
    "result_dtype": lambda p, n, o: o.signature.result.name,
    "accumulator": lambda p, n, o: o.signature.accumulator.name,
    "layouts": lambda p, n, o: o.signature.layout_pair,
    "epilogue": lambda p, n, o: "+".join(o.signature.epilogue) or "none",
    "scaling": lambda p, n, o: str(o.signature.scaling),
}

KEYS = (*_TEXTS, *_INTEGERS)
"""Names that may precede ``=``: the columns that are known before a dispatch runs, and `dtype` (of
A)."""

_CLOSING = {"[": "]", "(": ")", "{": "}"}
_GLOB = re.compile(r"[*?\[{]")
_REGEX = re.compile(r"[.^$+|()\\]")
"""Characters that identify a regular expression, as no name contains them (docs/names.md)."""
_BRACKETS = re.compile(r"\[[^\]]*\]")
"""A class of characters, in globs and in regular expressions."""
_OPEN = re.compile(r"[*?\[{.^$+|()\\]")
"""Characters at which the fixed beginning of a pattern ends."""
_NAME = re.compile(rf"(?:{'|'.join(OperationKind)})_\d")
"""Text that begins like an operation's name is treated as one, so that a typing mistake in it is
reported."""


def split_patterns(text: str) -> list[str]:
    """Patterns of a comma-separated list; a comma inside brackets belongs to its pattern."""
    patterns: list[str] = []
    current, open_brackets = "", ""
    for index, character in enumerate(text):
        if open_brackets and character == open_brackets[-1]:
            open_brackets = open_brackets[:-1]
        elif character in _CLOSING and _CLOSING[character] in text[index + 1 :]:
            open_brackets += _CLOSING[character]
        if character == "," and not open_brackets:
            patterns.append(current)
            current = ""
        else:
            current += character
    patterns.append(current)
    return [pattern.strip() for pattern in patterns if pattern.strip()]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One term of a selection, as written and as a test."""

    text: str
    matches: _Test


def parse_pattern(text: str) -> Pattern:
    """``re:REGEX`` (searched in ``provider:name``), ``key=value``, an expression that
    :func:`is_regex_by_its_look` recognises (searched in the name and in ``provider:name``), or a
    glob on either. An operation's name selects all its dispatches.

    Raises:
        RequestError: the regular expression or the value cannot be read.
        UnknownNameError: no such key.
    """
    if text.startswith("re:"):
        hint = "A pattern without re: is a glob, where * stands for anything."
        marked = _expression(text[3:], hint)
        return Pattern(text, lambda p, n, o: marked.search(f"{p}:{n}") is not None)
    if is_regex_by_its_look(text):
        hint = "In a glob * stands for anything; names contain only letters, digits and _."
        search = _expression(text, hint).search
        return Pattern(text, lambda p, n, o: (search(n) or search(f"{p}:{n}")) is not None)
    key, equals, value = text.partition("=")
    if equals:
        return Pattern(text, _key_test(key.strip(), value.strip()))
    provider, _, name = text.rpartition(":")
    if not _GLOB.search(text):
        with suppress(NameSyntaxError):
            wanted = parse_operation(name)
            return Pattern(text, lambda p, n, o: o == wanted and provider in ("", p))
    glob = _glob(text)
    if ":" in text:
        return Pattern(text, lambda p, n, o: glob(f"{p}:{n}") is not None)
    return Pattern(text, lambda p, n, o: (glob(n) or glob(f"{p}:{n}")) is not None)


def is_regex_by_its_look(text: str) -> bool:
    """True for a pattern without ``re:`` that can only be a regular expression, as the dispatch
    profiler's document writes them (``matmul_.*_f32t_.*``): no name contains a ``.`` or another
    character of :data:`_REGEX`, so as a glob it would select nothing."""
    if text.startswith("re:") or "=" in text:
        return False
    _, _, name = text.rpartition(":")
    return _REGEX.search(_BRACKETS.sub("", name)) is not None


def _expression(text: str, hint: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise RequestError(
            f"the regular expression {text!r} is invalid: {error}", hint=hint
        ) from error


def _key_test(key: str, value: str) -> _Test:
    if key in _INTEGERS:
        sizes, number = frozenset(parse_sizes(value.strip("{}"))), _INTEGERS[key]
        return lambda p, n, o: number(o) in sizes
    if key not in _TEXTS:
        raise UnknownNameError("key of a selection", key, KEYS)
    get, glob = _TEXTS[key], _glob(value)
    return lambda p, n, o: glob(get(p, n, o)) is not None


def _glob(pattern: str) -> Callable[[str], re.Match[str] | None]:
    alternatives = "|".join(fnmatch.translate(text) for text in _expand_braces(pattern))
    return re.compile(alternatives).match


def _expand_braces(pattern: str, limit: int = 1000) -> list[str]:
    """``a{b,c}`` -> ``ab``, ``ac``, as shells do."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        match = re.search(r"\{([^{}]*)\}", text)
        if match is None:
            done.append(text)
        else:
            waiting.extend(
                text[: match.start()] + part.strip() + text[match.end() :]
                for part in reversed(match[1].split(","))
            )
        if len(done) + len(waiting) > limit:
            raise RequestError(
                f"the pattern {pattern[:100]!r} has more than {limit} alternatives",
                hint="Use * or re: with a regular expression.",
            )
    return done


@dataclass(frozen=True, slots=True)
class PatternSelection:
    """Dispatches that match an `include` pattern (all, if there is none) and no `exclude` one.

    `configurations` limits a provider to configurations whose names match one of its globs.
    `without` leaves out all of a provider's dispatches of an operation.
    """

    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    configurations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: frozenset[tuple[str, Operation]] = frozenset()
    _found: set[str] = field(default_factory=set, compare=False, repr=False)
    """Patterns that selected a dispatch, which :meth:`idle_patterns` leaves out."""

    @property
    def everything(self) -> bool:
        return not (self.include or self.exclude or self.configurations or self.without)

    def matches(self, provider: str, name: str, operation: Operation) -> bool:
        if self.without and (provider, operation) in self.without:
            return False
        if any(pattern.matches(provider, name, operation) for pattern in self.exclude):
            return False
        globs = self.configurations.get(provider)
        if globs is not None:
            configuration = _TEXTS["configuration"](provider, name, operation)
            found = [glob for glob in globs if fnmatch.fnmatchcase(configuration, glob)]
            self._found.update(f"{provider}:{glob}" for glob in found)
            if not found:
                return False
        if not self.include:
            return True
        is_wanted = False
        for pattern in self.include:
            is_needed = not is_wanted or pattern.text not in self._found
            if is_needed and pattern.matches(provider, name, operation):
                is_wanted = True
                self._found.add(pattern.text)
        return is_wanted

    def idle_patterns(self) -> list[str]:
        """Patterns of `include`, and of `configurations` after the provider and a colon, that
        selected nothing, after :meth:`matches` was called for every dispatch; empty if it was never
        called."""
        texts = [pattern.text for pattern in self.include]
        texts += [f"{name}:{glob}" for name, globs in self.configurations.items() for glob in globs]
        return [text for text in texts if text not in self._found] if self._found else []

    def document(self) -> dict[str, Any]:
        """The selection in canonical JSON form."""
        return {
            "include": [pattern.text for pattern in self.include],
            "exclude": [pattern.text for pattern in self.exclude],
            "configurations": {name: list(globs) for name, globs in self.configurations.items()},
        }


def named_dispatch(pattern: str, providers: Collection[str]) -> NamedDispatch | None:
    """The dispatch that `pattern` names in full, or None if it is a pattern or an operation.

    `providers` are the names that may stand before a colon.

    Raises:
        NameSyntaxError: it looks like a name (no wildcard, starts like one) but does not parse.
    """
    if pattern.startswith("re:") or "=" in pattern or _OPEN.search(pattern):
        return None
    provider, name = _split_provider(pattern, providers)
    if _NAME.match(name) is None:
        return None
    operation, configuration = split_dispatch_name(name)
    if not configuration:
        return None
    return NamedDispatch(operation=operation, configuration=configuration, provider=provider)


def pattern_operation(pattern: str, providers: Collection[str]) -> Operation | None:
    """The complete operation at the beginning of a pattern, so that a shape that no option gives
    can be created; None if the pattern leaves the operation open."""
    if pattern.startswith("re:") or "=" in pattern:
        return None
    _, name = _split_provider(pattern, providers)
    match = _OPEN.search(name)
    fixed = name if match is None else name[: match.start()]
    if match is not None and "_" in fixed:
        fixed = fixed[: fixed.rindex("_")]
    try:
        return split_dispatch_name(fixed)[0]
    except NameSyntaxError:
        return None


def _split_provider(pattern: str, providers: Collection[str]) -> tuple[str | None, str]:
    provider, colon, name = pattern.partition(":")
    if not colon:
        return None, pattern
    if provider not in providers and not _GLOB.search(provider):
        raise UnknownNameError("provider", provider, providers, where=repr(pattern))
    return provider, name
