"""Help as plain text, for commands and for groups of them.

Typer's own tables cut names that are wider than their column, so that they cannot be typed, and
loading the library that draws them takes longer than everything else in ``gemmetry --help``.

Groups of commands, each of which is imported when it is needed.

The command `gemmetry`: commands by name, errors and exit statuses.

Mistakes that the parser of the command line finds, as errors of ours.
"""

from __future__ import annotations

import errno
import functools
import importlib
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    RequestError,
    StorageError,
    UnknownNameError,
    did_you_mean,
    nearest,
)

_WIDEST_NAME = 30
"""The widest column of names in a help text, in characters; longer names get their own line."""


class PlainHelp:
    """The plain ``--help`` of a command; it precedes typer's class among the bases."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write usage, examples, description, options and epilog."""
        self.format_usage(ctx, formatter)
        _write_examples(ctx.command_path, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options under the headings of their panels."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            heading = getattr(parameter, "rich_help_panel", None)
            heading = heading or ("Arguments" if is_argument else "Options")
            panels.setdefault(heading, []).append(record)
        for heading, records in panels.items():
            with formatter.section(heading):
                _write_records(records, formatter)


def pages() -> dict[str, Path]:
    """Topic -> its page: of an installed package next to its modules, else of the checkout."""
    package = Path(__file__).parents[1]
    folder = package / "pages"
    if not folder.is_dir():
        folder = package.parents[1] / "docs"
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def read_examples() -> dict[str, list[tuple[str, str]]]:
    """Command, without ``gemmetry``, -> what its examples do, and the lines that do it, from the
    page of examples; "" for ``gemmetry`` itself."""
    sections = pages()["examples"].read_text("utf-8").split("\n## gemmetry")[1:]
    parts = (section.partition("\n") for section in sections)
    return {name.strip(): _EXAMPLE.findall(text) for name, _, text in parts}


_EXAMPLE = re.compile(r"^(\S[^\n]*)\n\n```sh\n(.*?)\n```$", re.M | re.S)


def _write_examples(command_path: str, formatter: Any) -> None:
    """Write the examples of the command ``gemmetry ...``; there are none of others."""
    program, _, command = command_path.partition(" ")
    examples = read_examples().get(command) if program == "gemmetry" else None
    if examples:
        with formatter.section("Examples"):
            for text, line in examples:
                formatter.write(f"{'':{formatter.current_indent}}{text}\n")
                formatter.write(textwrap.indent(line, " " * (formatter.current_indent + 2)) + "\n")


def _write_records(records: Sequence[tuple[str, str]], formatter: Any) -> None:
    """Write names with their meanings next to them. Unlike in the formatter's own lists, hyphenated
    names in the text are not broken."""
    indent = formatter.current_indent
    column = min(max(len(name) for name, _ in records), _WIDEST_NAME) + 2
    room = formatter.width - indent - column
    for name, text in records:
        lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)
        if len(name) + 2 > column:
            lines.insert(0, "")
        for left, right in zip_longest([name], lines, fillvalue=""):
            formatter.write(f"{'':{indent}}{left:<{column}}{right}".rstrip() + "\n")


class LazyGroup(PlainHelp, TyperGroup):
    """A group of commands, whose help lists them with the first paragraph of what each does. It
    makes a command when it is needed, so that none pays for the options of the others."""

    members: ClassVar[Mapping[str, str | Callable[..., Any]]] = {}
    """Command -> its function, or where that or a group is: ``module:name`` below
    ``gemmetry.cli``."""

    usual: ClassVar[str] = ""
    """The command that is meant where the first word is no command."""

    summaries: ClassVar[Mapping[str, str]] = {}
    """Command -> one line of help. With it, listing the commands imports none of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; without any, show the help and an error that names the commands.

        Raises:
            RequestError: there are no arguments.
        """
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise RequestError(
                f"{ctx.command_path} needs a command: {', '.join(self.members)}",
                hint=f"`{ctx.command_path} COMMAND --help` shows the options of each.",
            )
        if self.usual and args and args[0] not in (*self.members, *ctx.help_option_names):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.members and cmd_name not in self.commands:
            if cmd_name in self.summaries:
                return TyperCommand(cmd_name, callback=None, help=self.summaries[cmd_name])
            self.commands[cmd_name] = self.load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names.

        Raises:
            UnknownNameError: no command has that name; the nearest are suggested.
        """
        name = args[0] if args else ""
        if name == "agent" and self.summaries:
            from gemmetry.domain.settings import WITHOUT_AGENTS

            raise RequestError("there is no command agent any more", hint=WITHOUT_AGENTS)
        if name in self.summaries and name not in self.commands:
            self.commands[name] = self.load(name)
        if name not in self.members and not (name.startswith("-") or ctx.resilient_parsing):
            raise UnknownNameError("command", name, self.members, where=ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options, then every command with its description, uncut."""
        super().format_options(ctx, formatter)
        records = [
            (name, " ".join((self.get_command(ctx, name).help or "").split("\n\n")[0].split()))
            for name in self.members
        ]
        with formatter.section("Commands"):
            _write_records(records, formatter)

    @classmethod
    @functools.cache
    def load(cls, name: str) -> Any:
        """Import and make the command or group called `name`."""
        found: Any = cls.members[name]
        if isinstance(found, str):
            place, _, attribute = found.partition(":")
            found = getattr(importlib.import_module(f"gemmetry.cli.{place}"), attribute)
        if isinstance(found, typer.Typer):
            command = typer.main.get_command(found)
            command.name = name
            return command
        from gemmetry.cli.options import build_command

        return build_command(name, found)


def named(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Commands by the names of their functions: ``tuner-config`` is the function
    ``tuner_config``."""
    return {one.__name__.rstrip("_").replace("_", "-"): one for one in functions}


def group_app(
    text: str,
    members: Mapping[str, str | Callable[..., Any]],
    summaries: Mapping[str, str] = MappingProxyType({}),
    usual: str = "",
    **settings: Any,
) -> typer.Typer:
    """A group of commands with `text` as its help; the others as in :class:`LazyGroup`."""
    facts = {"members": members, "summaries": summaries, "usual": usual}
    kind = type("Commands", (LazyGroup,), facts)
    settings = {"add_completion": False, "callback": lambda: None, **settings}
    return typer.Typer(cls=kind, no_args_is_help=True, help=text, **settings)


COMMANDS: dict[str, tuple[str, str]] = {
    "profile": ("experiments:profile", "Generate, compile, verify, measure and report dispatches."),
    "generate": ("experiments:generate", "Write the sources of dispatches without compiling them."),
    "compile": ("experiments:compile_", "Compile dispatches without running them."),
    "verify": ("experiments:verify_app", "Verify dispatches without timing them."),
    "tune": ("tune:tune", "Search for the fastest configurations of a provider."),
    "trace": ("trace:app", "Record and read traces."),
    "sweep": ("sweep:app", "Run, analyse and compare sweeps of training runs."),
    "counters": ("counters:app", "Collect, read and diagnose hardware counters."),
    "dispatcher": ("tune:dispatcher_app", "Build, show and evaluate tables of fast kernels."),
    "kernels": ("machine:kernels_app", "List, check and measure this project's own CUDA kernels."),
    "list": ("machine:list_app", "List providers, configurations, operations, dtypes, columns."),
    "report": ("experiments:report", "Print or write the reports of an experiment."),
    "show": ("experiments:show", "Show everything about one dispatch of an experiment."),
    "merge": ("experiments:merge", "Merge experiments into one folder."),
    "import": ("experiments:import_", "Import results of other benchmarks."),
    "history": ("history:app", "Store medians of many runs, find changes and their causes."),
    "judge": ("judge:app", "Judge submissions: right, honest, and how fast?"),
    "compare": ("experiments:compare", "Compare experiments; exit status 1 on a regression."),
    "cache": ("machine:cache_app", "Remove the caches of traces that were read."),
    "doctor": ("machine:doctor", "Report what this machine can do, and why it cannot do the rest."),
    "schema": ("machine:schema", "Print the JSON schema of spec files or of results."),
    "help": ("machine:help_", "Print a page of the documentation."),
}
"""Command -> its module and one line of help; the module is imported when the command is run."""


_INTERRUPTED = 130
"""128 + SIGINT, as shells count it."""

_INTERNAL = 70
"""``EX_SOFTWARE`` of ``sysexits.h``: an error in gemmetry itself."""

TRACEBACK = "GEMMETRY_TRACEBACK"
"""Environment variable with which an error in gemmetry shows where it was raised."""

_LONGEST_CAUSE = 300

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of full storage: when writing files, or output that is redirected to a file."""


app = group_app(
    "A workbench for matrix-multiply performance: generate, prove, measure, explain and "
    "compare GEMM dispatches.",
    {name: place for name, (place, _) in COMMANDS.items()},
    {name: text for name, (_, text) in COMMANDS.items()},
    add_completion=True,
    epilog="gemmetry COMMAND --help lists a command's options. Exit status: 0 success, 1 a wrong "
    "or slower result, 2 an invalid request, 3 a failure of the machine, 70 an error in gemmetry, "
    "130 interrupted.",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def load_command(name: str) -> Any:
    """The command (or group of commands) called `name`."""
    return typer.main.get_command(app).load(name)  # type: ignore[attr-defined]


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemmetry import __version__

        typer.echo(f"gemmetry {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version."
    ),
) -> None:
    """Options of the command itself; what it does is the callback's."""


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status; errors are reported on stderr.

    An exception that gemmetry did not raise on purpose ends with a status of its own: 1 would be a
    regression to whoever checks for one.
    """
    command = typer.main.get_command(app)
    status = 0
    try:
        try:
            # Not standalone, so that the parser's own errors come here and look like all others.
            status = command.main(args=arguments, prog_name="gemmetry", standalone_mode=False) or 0
        finally:
            # Output that cannot be written is reported here, not by the interpreter when it ends.
            sys.stdout.flush()
    except GemmetryError as error:
        return print_error(error)
    except PARSER_ERROR as error:
        return print_error(parser_mistake(error))
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except OSError as error:
        if error.errno == errno.EPIPE:
            return 1  # the reader has closed the pipe
        if error.errno in _STORAGE:
            hint = "Free some disk space, or write to another folder."
            return print_error(
                StorageError(f"cannot write the output: {error.strerror}", hint=hint)
            )
        if error.filename is None or os.environ.get(TRACEBACK):
            return _internal_error(error)
        return print_error(unusable_path(error.filename, error.strerror or str(error)))
    except MemoryError:
        hint = "Give fewer or smaller files or shapes."
        return print_error(EnvironmentFailure("the memory did not suffice", hint=hint))
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last boundary
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
            # Of Path.resolve() before Python 3.13, which is an OSError everywhere else.
            path = str(error).rpartition("from ")[2]
            return print_error(unusable_path(path, "it is a loop of links"))
        # Some libraries turn an interrupt while they are imported into an error of their own.
        status = _INTERRUPTED if _interrupts else _internal_error(error)
    if status == _INTERRUPTED:
        typer.echo("interrupted", err=True)
    return status


def unusable_path(path: Any, cause: str) -> RequestError:
    """The error for a path that a command could not use, whichever command it was."""
    name = os.fsdecode(path) if isinstance(path, str | bytes) else "a file"
    hint = "Check the path, and that you may use it and the folders above it."
    return RequestError(f"cannot use {name}: {cause}", hint=hint)


def _internal_error(error: Exception) -> int:
    """Report an error in gemmetry in one sentence, or with its traceback if that is requested."""
    from gemmetry.cli.console import note

    if os.environ.get(TRACEBACK):
        import traceback

        traceback.print_exception(error)
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0][:_LONGEST_CAUSE]}" if lines else type(error).__name__
    note(f"internal error: {what}")
    note("hint: This is an error in gemmetry. Please report it where you got gemmetry from, with "
         f"the command and what it prints with {TRACEBACK}=1.")  # fmt: skip
    return _INTERNAL


_interrupts: list[int] = []
"""Signals of interrupts that arrived."""


def _note_interrupt(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def print_error(error: GemmetryError) -> int:
    """Print an error of gemmetry: one line per mistake, after ``error:``, then the hint. Returns
    its exit status."""
    from gemmetry.cli.console import note

    for line in getattr(error, "mistakes", None) or (error.message,):
        note(f"{error.label}: {line}")
    if error.hint:
        note(f"hint: {error.hint}")
    return error.exit_status


def main() -> None:
    """Run the command line as a process, and exit with its status."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _note_interrupt)
    status = run()
    try:
        sys.stdout.flush()
    except OSError:
        # The error was reported; with unwritten output the interpreter would repeat it and exit
        # with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


PARSER_ERROR: Any = typer.BadParameter.__mro__[2]
"""Base class of the parser's errors (``ClickException``); typer gives it no name of its own."""

_ALIKE = 0.6
"""Names of options are suggested from this similarity on: a typing error keeps more of a name
(one letter of six: 0.83), and names that only share letters have less ("undecided" and "device":
0.53)."""

_MOST_NAMED = 3
_HAS = ("has", "have")


def parser_mistake(error: Any) -> RequestError:
    """The mistake with its command, the cause and what to do, in the form of our own errors."""
    context = getattr(error, "ctx", None)
    command = "gemmetry" if context is None else context.command_path
    hint = f"`{command} --help` shows its options and examples."
    unknown = getattr(error, "option_name", None)
    from gemmetry.domain.settings import OF_AGENTS, WITHOUT_AGENTS

    if unknown in OF_AGENTS:
        return RequestError(
            f"there is no option {unknown} of {command} any more", hint=WITHOUT_AGENTS
        )
    if type(error).__name__ == "NoSuchOption" and unknown is not None:
        suggestion = "" if context is None else _suggestion(unknown, context)
        return RequestError(f"unknown option {unknown!r} of {command}", hint=f"{suggestion}{hint}")
    text = error.format_message().rstrip(".")
    return RequestError(f"{command}: {text[:1].lower()}{text[1:]}", hint=hint)


def _suggestion(unknown: str, context: Any) -> str:
    """The commands that have the option, else options of this command that are spelled alike."""
    found = every_command()
    having = [f"gemmetry {name}" for name, command in found if unknown in _options(command)]
    if having:
        more = f" and {len(having) - _MOST_NAMED} more" if len(having) > _MOST_NAMED else ""
        return f"{', '.join(having[:_MOST_NAMED])}{more} {_HAS[len(having) > 1]} {unknown}. "
    known = {name.removeprefix("--"): name for name in _options(context.command)}
    near = nearest(unknown.lstrip("-"), known, cutoff=_ALIKE)
    return f"{did_you_mean([known[name] for name in near])} ".lstrip()


def every_command() -> Iterator[tuple[str, Any]]:
    """Each command and group with the words that call it, without ``gemmetry``; only here the
    modules of all are imported."""
    for name in COMMANDS:
        command = load_command(name)
        yield name, command
        if hasattr(command, "list_commands"):
            context: Any = None  # gemmetry's groups do not use it
            for below in command.list_commands(context):
                yield f"{name} {below}", command.get_command(context, below)


def _options(command: Any) -> list[str]:
    """Names of the command's options that its help shows."""
    return [
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
