"""The command `gemmetry`: commands by name, errors and exit statuses."""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import FrameType
from typing import Any, ClassVar

import typer

from gemmetry.cli.groups import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "profile": ("profile_command", "Generate, compile, verify, measure and report dispatches."),
    "generate": ("generate_command", "Write the sources of dispatches without compiling them."),
    "compile": ("compile_command", "Compile dispatches without running them."),
    "verify": ("verify_command", "Verify dispatches without timing them."),
    "tune": ("tune_command", "Search for the fastest configurations of a provider."),
    "trace": ("trace.group", "Record and read traces."),
    "sweep": ("sweep.group", "Run, analyse and compare sweeps of training runs."),
    "counters": ("counters.group", "Collect, read and diagnose hardware counters."),
    "dispatcher": ("dispatcher.group", "Build, show and evaluate tables of fast kernels."),
    "kernels": ("kernels.group", "List, check and measure this project's own CUDA kernels."),
    "list": ("list_command", "List providers, configurations, operations, dtypes, columns."),
    "report": ("report_command", "Print or write the reports of an experiment."),
    "show": ("show_command", "Show everything about one dispatch of an experiment."),
    "merge": ("merge_command", "Merge experiments into one folder."),
    "import": ("import_command", "Import results of other benchmarks."),
    "history": ("history.group", "Store medians of many runs, find changes and their causes."),
    "compare": ("compare_command", "Compare experiments; exit status 1 on a regression."),
    "cache": ("cache_command", "Remove the caches of traces that were read."),
    "agent": ("agent_command", "Serve one device of this machine to a run elsewhere."),
    "doctor": ("doctor_command", "Report what this machine can do, and why it cannot do the rest."),
    "schema": ("schema_command", "Print the JSON schema of spec files or of results."),
    "help": ("help_command", "Print a page of the documentation."),
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


class _Commands(LazyGroup):
    modules: ClassVar = {name: module for name, (module, _) in COMMANDS.items()}
    summaries: ClassVar = {name: text for name, (_, text) in COMMANDS.items()}


def load_command(name: str) -> Any:
    """The command (or group of commands) called `name`."""
    return _Commands.load(name)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="A workbench for matrix-multiply performance: generate, prove, measure, explain and "
    "compare GEMM dispatches.",
    epilog="gemmetry COMMAND --help lists a command's options. Exit status: 0 success, 1 a wrong "
    "or slower result, 2 an invalid request, 3 a failure of the machine, 70 an error in gemmetry, "
    "130 interrupted.",
    context_settings={"help_option_names": ["--help", "-h"]},
)


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
    from gemmetry.cli.usage import PARSER_ERROR, parser_mistake
    from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError, StorageError

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
        print_error(error)
        return error.exit_status
    except PARSER_ERROR as error:
        mistake = parser_mistake(error)
        print_error(mistake)
        return mistake.exit_status
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except OSError as error:
        if error.errno == errno.EPIPE:
            return 1  # the reader has closed the pipe
        if error.errno in _STORAGE:
            hint = "Free some disk space, or write to another folder."
            print_error(StorageError(f"cannot write the output: {error.strerror}", hint=hint))
            return StorageError.exit_status
        if error.filename is None or os.environ.get(TRACEBACK):
            return _internal_error(error)
        print_error(unusable_path(error.filename, error.strerror or str(error)))
        return RequestError.exit_status
    except MemoryError:
        print_error(EnvironmentFailure("the memory did not suffice",
                          hint="Give fewer or smaller files or shapes."))  # fmt: skip
        return EnvironmentFailure.exit_status
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last boundary
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
            # Of Path.resolve() before Python 3.13, which is an OSError everywhere else.
            print_error(unusable_path(str(error).rpartition("from ")[2], "it is a loop of links"))
            return RequestError.exit_status
        # Some libraries turn an interrupt while they are imported into an error of their own.
        status = _INTERRUPTED if _interrupts else _internal_error(error)
    if status == _INTERRUPTED:
        typer.echo("interrupted", err=True)
    return status


def unusable_path(path: Any, cause: str) -> Any:
    """The error for a path that a command could not use, whichever command it was."""
    from gemmetry.domain.errors import RequestError

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


def print_error(error: Any) -> None:
    """Print an error of gemmetry: one line per mistake, after ``error:``, then the hint."""
    from gemmetry.cli.console import note

    for line in getattr(error, "mistakes", None) or (error.message,):
        note(f"{error.label}: {line}")
    if error.hint:
        note(f"hint: {error.hint}")


def main() -> None:
    """Run the command line as the process."""
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
