"""Converts arguments as the dispatch profiler's documents write them to the form that typer parses.

``--flag=true``, ``--flag true``, ``--flag a b c``, ``--under_scores`` and old names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

from gemmetry.cli.help_text import PlainHelp
from gemmetry.cli.usage import PARSER_ERROR
from gemmetry.domain.errors import RequestError
from gemmetry.specs.keys import KEYS

TRUE = frozenset(("true", "yes", "on", "1"))
FALSE = frozenset(("false", "no", "off", "0"))

_NEGATIVE_NUMBER = re.compile(r"-\d")

OPTION_ALIASES: dict[str, str] = {
    f"--{alias.replace('_', '-')}": key.option for key in KEYS.values() for alias in key.aliases
}
"""Alias -> the option that it names."""


class WorkbenchCommand(PlainHelp, TyperCommand):
    """A command whose arguments may be written in the old ways."""

    def __init__(self, name: str | None, *, help: str | None = None, **rest: Any) -> None:
        # A docstring's line breaks are those of its source, not of the terminal.
        paragraphs = (help or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        super().__init__(name, help=text, **rest)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        has_arguments = any(p.param_type_name == "argument" for p in self.params)
        options = [p for p in self.params if isinstance(p, TyperOption)]
        try:
            given = normalize(args, options, has_arguments, ctx.allow_interspersed_args)
            return super().parse_args(ctx, list(given))
        except PARSER_ERROR as error:
            # The parser does not report the command of an option without its value.
            error.ctx = getattr(error, "ctx", None) or ctx
            raise


def normalize(
    arguments: Sequence[str],
    options: Iterable[TyperOption],
    has_arguments: bool = False,
    are_mixed: bool = True,
) -> Iterator[str]:
    """`arguments` in the form that the parser of `options` knows.

    `has_arguments`: the command takes positional arguments, so words after an option's value
    are not gathered into a list. `are_mixed`: options may follow them; otherwise what follows the
    first is a command's own.

    Raises:
        RequestError: a flag has a value that is neither true nor false.
    """
    named = {name: o for o in options for name in (*o.opts, *o.secondary_opts)}
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word == "--" or not (are_mixed or word.startswith("-")):
            yield word
            yield from reversed(waiting)
            return
        if not word.startswith("--"):
            yield word
            option = named.get(word)
            if option is not None and not option.is_flag and waiting:
                yield waiting.pop()
            continue
        name, equals, text = word.partition("=")
        name = canonical_option(name, named)
        value = text if equals else None
        option = named.get(name)
        if option is None:
            yield f"{name}={value}" if equals else name
        elif option.is_flag:
            if value is None and not has_arguments and waiting and _is_truth(waiting[-1]):
                value = waiting.pop()
            yield _flag(name, value, option)
        elif value is None and (bare := _bare(name, option, waiting)):
            yield f"{name}={bare}"
        else:
            yield from _values(name, value, option, waiting, has_arguments)


def canonical_option(name: str, known: Mapping[str, object]) -> str:
    """The option's present name; unknown ones unchanged, for the parser to suggest the nearest."""
    hyphened = name.replace("_", "-")
    for candidate in (hyphened, hyphened.lower()):
        candidate = OPTION_ALIASES.get(candidate, candidate)
        negated = OPTION_ALIASES.get(candidate.replace("--no-", "--", 1))
        if candidate in known:
            return candidate
        if negated is not None and candidate.startswith("--no-"):
            return negated.replace("--", "--no-", 1)
    return name


def _bare(name: str, option: TyperOption, waiting: Sequence[str]) -> str:
    """The value of a spec's option that may be given without one, if it is; "" otherwise."""
    key = KEYS.get(name.removeprefix("--").replace("-", "_"))
    has_value = bool(waiting) and not waiting[-1].startswith("-")
    # Another command may have an option of its own with this name.
    is_of_spec = key is not None and option.rich_help_panel == key.panel
    return key.bare if key is not None and is_of_spec and not has_value else ""


def _is_truth(word: str) -> bool:
    return word.lower() in TRUE | FALSE


def _flag(name: str, value: str | None, option: TyperOption) -> str:
    if value is None or value.lower() in TRUE:
        return name
    if value.lower() not in FALSE:
        raise RequestError(
            f"{name} takes true or false, not {value!r}", hint=f"Write {name}=true or {name}=false."
        )
    opposite = option.secondary_opts if name in option.opts else option.opts
    if not opposite:
        raise RequestError(f"{name} cannot be turned off", hint=f"Leave {name} out.")
    return opposite[0]


def _values(
    name: str,
    value: str | None,
    option: TyperOption,
    waiting: list[str],
    has_arguments: bool,
) -> Iterator[str]:
    if value is None:
        if not waiting:
            yield name
            return
        value = waiting.pop()
    yield f"{name}={value}"
    while option.multiple and not has_arguments and waiting and _is_value(waiting[-1]):
        yield f"{name}={waiting.pop()}"


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NEGATIVE_NUMBER.match(word) is not None
