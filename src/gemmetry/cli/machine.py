"""Commands about this machine and gemmetry itself: ``gemmetry list``, ``doctor``, ``schema``,
``help``, ``cache``, and the group about our own kernels, ``kernels``.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gemmetry.cli.console import (
    Source,
    note,
    plan_request,
    print_failure,
    print_json,
    read_request,
    say,
    stderr_console,
    stdout_console,
    watched,
)
from gemmetry.cli.main import COMMANDS, app, group_app, named, pages
from gemmetry.cli.options import Options, Printed, Restartable, Written, argument, option, request
from gemmetry.domain.tables import Column, Table, plain_columns
from gemmetry.domain.units import plural

if TYPE_CHECKING:
    from gemmetry.domain.dispatch import Plan


def providers(options: Written) -> None:
    """Providers: on which devices each works here, or why it does not."""
    columns = plain_columns(
        "provider available:boolean devices:texts compiles_for:texts description reason"
    )
    rows = [
        (name, reason is None, devices, ahead, str(getattr(one, "description", "")), reason)
        for name, one, reason, devices, ahead in _providers()
    ]
    options.emit(Table("providers", columns, rows))


def support(options: Written) -> None:
    """What each provider supports on each target: "yes", or the reason why not."""
    from gemmetry.engine.catalogue import support_rows

    found = list(support_rows())
    columns = tuple(map(Column, ("asked", "operation", *found[0].refusals)))
    rows = [
        (row.label, row.operation, *(refusal or "yes" for refusal in row.refusals.values()))
        for row in found
    ]
    options.emit(Table("support", columns, rows))


def dtypes(options: Written) -> None:
    """Number formats and their aliases."""
    from gemmetry.domain.operation import DTYPE_ALIASES, DTYPES

    columns = plain_columns(
        "dtype bits:integer significand_bits:integer maximum:number also:texts description"
    )
    also = {name: [a for a, of in DTYPE_ALIASES.items() if of == name] for name in DTYPES}
    rows = [
        (name, d.storage_bits, d.significand_bits or None, d.maximum, also[name], d.description)
        for name, d in DTYPES.items()
    ]
    options.emit(Table("dtypes", columns, rows))


def columns(options: Written) -> None:
    """Columns of tables, CSV and JSON records."""
    from gemmetry.domain.columns import COLUMNS

    columns = plain_columns("column unit description")
    rows = [(c.name, c.unit or None, c.description) for c in COLUMNS]
    options.emit(Table("columns", columns, rows))


class Listed(Written):
    """The options of a list of what a request plans."""

    limit: int = option("List at most this many rows; 0: all.", min=0, default=1000)
    source: Source = request(saves=False)

    def plan(self) -> Plan:
        """The plan of the request."""
        return plan_request(read_request(self.source), self.source, shows_notes=False).plan


def operations(options: Listed) -> None:
    """Operations of a request, with FLOPs and compulsory bytes; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.domain.operation import operation_name

    columns = plain_columns("operation kind flops:integer:FLOP bytes:integer:B")
    rows = [
        (operation_name(operation), str(operation.kind), operation.flops, operation.bytes)
        for operation in islice(options.plan().operations, options.limit or None)
    ]
    options.emit(Table("operations", columns, rows))


def configurations(options: Listed) -> None:
    """Configurations that providers offer for a request; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.engine.catalogue import list_dispatches

    columns = plain_columns("provider target operation configuration refusal")
    rows = [
        (d.provider, d.target.name, d.operation, d.configuration, d.refusal or None)
        for d in islice(list_dispatches(options.plan()), options.limit or None)
    ]
    options.emit(Table("configurations", columns, rows))


list_app = group_app(
    "List providers, support, configurations, operations, dtypes or columns, without running "
    "anything.",
    named(providers, support, dtypes, columns, operations, configurations),
)


def doctor(options: Written) -> None:
    """Report what this machine can do, and why it cannot do the rest. Nothing runs."""
    from gemmetry.hardware.doctor import doctor_rows

    columns = plain_columns("capability available:boolean detail next_step")
    rows = [(r.capability, r.available, r.detail, r.next_step or None) for r in doctor_rows()]
    rows += [*_provider_rows(), *_dispatcher_rows()]
    options.emit(Table("capabilities", columns, rows), _print)


def _dispatcher_rows() -> list[tuple[Any, ...]]:
    """What ``gemmetry.matmul`` chooses among, by device; none without torch."""
    try:
        from gemmetry.tuning.dispatcher.runtime import doctor_lines
    except ImportError:
        return []
    return [(name, works, text, step or None) for name, works, text, step in doctor_lines()]


def _print(table: Table) -> None:
    """Print each capability with what is available or missing, and the next step below it. Without
    a terminal sentences stay on one line, so that they can be searched."""
    from rich.table import Table as RichTable
    from rich.text import Text

    console = stdout_console()
    rows = table.records()
    if not console.is_terminal:
        width = max(len(row["capability"]) for row in rows)
        for row in rows:
            can = "yes" if row["available"] else "no"
            say(f"{row['capability']:<{width}}  {can:<3}  {row['detail']}".rstrip())
            if row["next_step"]:
                say(f"{'':{width + 7}}→ {row['next_step']}")
        return
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        style = "green" if row["available"] else "yellow"
        text = Text(row["detail"])
        if row["next_step"]:
            text.append(f"\n→ {row['next_step']}", style="bold")
        grid.add_row(row["capability"], Text("yes" if row["available"] else "no", style), text)
    console.print(grid)


def _providers() -> Iterator[tuple[str, Any, str | None, list[str], list[str]]]:
    """Each provider: its name, itself, why it does not work here, its devices, and the targets it
    only compiles for."""
    from gemmetry.engine.catalogue import InstalledCatalogue

    catalogue = InstalledCatalogue()
    for name in catalogue.provider_names():
        provider = catalogue.provider(name)
        reason = provider.available()
        targets = provider.targets() if reason is None else ()
        devices = [t.device for t in targets if t.index is not None]
        yield name, provider, reason, devices, [t.name for t in targets if t.index is None]


def _provider_rows() -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for name, provider, reason, devices, ahead in _providers():
        parts = [reason]
        if reason is None:
            parts = [f"runs on {', '.join(devices)}" if devices else "",
                     f"compiles for {', '.join(ahead)}" if ahead else "",
                     ", ".join(f"{k} {v}" for k, v in provider.versions().items()),
                     *provider.doctor_notes()]  # fmt: skip
        # What a provider lacks is a sentence that ends with what to do.
        rows.append((f"provider {name}", reason is None, "; ".join(filter(None, parts)), None))
    return rows


_KINDS = ("spec", "results")


class Schema(Options):
    kind: str = argument(
        "spec (of spec files) or results (of --json).", "KIND", default="spec", complete=_KINDS
    )
    output: Path | None = option("Write it to a file.", "-o FILE")


def schema(options: Schema) -> None:
    """Print the JSON schema of spec files, which lets editors complete and check them."""
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.results.emit import write_atomically

    if options.kind not in _KINDS:
        raise UnknownNameError("schema", options.kind, _KINDS)
    if options.kind == "spec":
        from gemmetry.domain.specs.model import spec_schema as schema_of
    else:
        from gemmetry.domain.columns import result_schema as schema_of
    text = json.dumps(schema_of(), indent=2) + "\n"
    if options.output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(options.output, text.encode())


def _topics(incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys((*pages(), *COMMANDS)) if name.startswith(incomplete)]


class Help(Printed):
    topic: str = argument(
        "A page, or a command. Default: all pages.", "[TOPIC]", default="", complete=_topics
    )


def help_(options: Help) -> None:
    """Print a page of the documentation, or the list of all pages.

    The pages are those of the installed version. For the name of a command that has no page of its
    own it prints the command's --help.
    """
    found, topic = pages(), options.topic
    if not topic:
        titles = (re.search(r"^# +(.*)", path.read_text("utf-8"), re.M) for path in found.values())
        rows = [(name, title[1] if title else name)
                for name, title in zip(found, titles, strict=True)]  # fmt: skip
        options.emit(Table("topics", plain_columns("topic title"), rows))
        return
    text = found[topic].read_text("utf-8") if topic in found else _help_of(topic, found)
    if options.json:
        print_json({"topic": topic, "text": text})
    else:
        typer.echo(text.rstrip())


def _help_of(name: str, topics: Iterable[str]) -> str:
    """Output of the command `name` with ``--help``."""
    from gemmetry.domain.errors import UnknownNameError

    group: Any = typer.main.get_command(app)
    commands = group.list_commands(None)
    if name not in commands:
        known = (*topics, *commands)
        raise UnknownNameError("topic or command", name, known, where="gemmetry help")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        group.main(args=[name, "--help"], prog_name="gemmetry", standalone_mode=False)
    return shown.getvalue()


class Clear(Printed):
    paths: list[Path] = argument(
        "Traces, or folders to search, whose caches are removed too, even if another user wrote "
        "them.",
        "[PATH]...",
        default=None,
    )


def clear(options: Clear) -> None:
    """Remove the caches of traces: those that your runs wrote, and those of the given paths. Remove
    compiled kernels, and what `gemmetry kernels check` keeps.

    The traces themselves stay. A cache is written again when its trace is next read.
    """
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.files import COMPILED, clear_user_cache
    from gemmetry.traces.reading import clear_cache

    hint = "Give the path of a trace, or of a folder."
    for path in options.paths:
        try:
            if not path.exists():
                raise RequestError(f"{path} does not exist", hint=hint)
        except OSError as error:
            raise RequestError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    kept = map(clear_user_cache, ("kernels", COMPILED))
    removed = clear_cache(options.paths), *kept
    count, size = map(sum, zip(*removed, strict=True))
    text = f"removed {plural(count, 'cache')}, {size / 1e6:,.1f} MB"
    options.state(text, caches=count, bytes=size)


cache_app = group_app("Manage caches, of traces and of compiled kernels.", {"clear": clear})


class Check(Written):
    names: list[str] = argument(
        "Kernels and configurations as `gemmetry kernels list` prints them, or globs: r07, "
        "r11_128x256_c2x1_b8, 'decode*'. Default: all.",
        "[NAME]...",
        default=None,
    )
    kernel: str | None = option("The same as NAME.", "GLOB")
    jobs: int = option("Threads that compile; 0: one per core.", min=0, default=0)


def check(options: Check) -> int:
    """Compile kernels in each of their configurations, and check the machine code.

    No GPU is needed. What was found is kept until a source or the compiler changes.

    Exit status 1 if a kernel does not compile, spills registers, uses local memory, lacks an
    instruction that it is built on, or is slower than its source by a note of the compiler: matrix
    instructions that wait for each other, requests for registers that are ignored.
    """
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.domain.files import user_cache
    from gemmetry.engine.catalogue import check_kernels
    from gemmetry.hardware.host import usable_cores

    options.check()
    wanted = [*options.names, *([options.kernel] if options.kernel else ())]
    jobs, cache = options.jobs or usable_cores(), user_cache("kernels")
    with CountProgress("compiled", stderr_console()) as progress:
        table = check_kernels(wanted, jobs=jobs, kept_in=cache, progress=progress)
    options.emit(table, _print_checks)
    return int("failed" in table.values("status"))


def _print_checks(table: Table) -> None:
    """Print a line for each kernel, and below it what is wrong with which configuration."""
    from rich.text import Text

    console = stdout_console()
    for _, rows in groupby(table.records(), key=lambda row: row["name"]):
        found = list(rows)
        style = "" if all(row["status"] == "ok" for row in found) else "red"
        for line in _summary(found):
            console.print(Text(line, style), soft_wrap=True)
        for row in found:
            for problem in row["problems"]:
                console.print(Text(f"    {', '.join(row['configurations'])}: {problem}", "red"))
    if reasons := {reason for reason in table.values("not_disassembled") if reason}:
        console.print(Text(f"Instructions were not checked: {reasons.pop()}", "yellow"))


def _summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Up to three lines about the compilations of one kernel."""
    from gemmetry.domain.units import format_bytes, plural

    first = rows[0]
    failed = sum(row["status"] == "failed" for row in rows)
    verdict = f"{failed} of {len(rows)} failed" if failed else "ok"
    lines = [f"{first['name']}: {verdict}, {plural(len(rows), 'compilation')}"]
    registers = [row["registers"] for row in rows if row["registers"] is not None]
    if not registers:
        return lines
    shared = max(row["shared_bytes"] or 0 for row in rows)
    memory = f"up to {format_bytes(shared)} of shared memory" if shared else "no shared memory"
    span = " to ".join(map(str, sorted({min(registers), max(registers)})))
    lines.append(f"    {span} registers, {memory}")
    expecting = [row for row in rows if row["expected_instructions"]]
    if expecting and all(row["missing_instructions"] == [] for row in expecting):
        names = dict.fromkeys(name for row in expecting for name in row["expected_instructions"])
        lines.append(f"    with {', '.join(names)}")
    return lines


class LadderOptions(Written, Restartable):
    folder: Path | None = argument(
        "A folder with results, which are shown; nothing runs. Default: run the ladder.",
        "[EXPERIMENT]",
    )
    sizes: str | None = option(
        "M = N = K. Rungs 0 to 2 run up to 512, those from 2 on above. Default: "
        "256,2048,4096,8192.",
        "SIZES",
    )
    rungs: str | None = option("Only these: 2,5-11. Default: all.", "NUMBERS")
    dtype: str = option("Format of A, B and C: bf16 or f16.", "NAME", default="bf16")
    configurations: int = option("How many of each rung, the best by plan.", min=1, default=2)
    regime: str = option("Thermal regime: burst or sustained.", "NAME", default="burst")
    device: str | None = option("cuda:1. Default: the first Hopper GPU.", "DEVICE")
    experiment: Path | None = option("Folder. Default: gemmetry-out/ladder-<hash of plan>.", "DIR")


def ladder(options: LadderOptions) -> int:
    """Verify and measure every rung of the ladder, interleaved with cuBLAS, and show its gain.

    A rung is compared with the one before only on sizes that both ran. All intervals hold together.
    The gains that were planned for each phase are shown next to what was measured. Files: tables
    (csv, json, parquet, xlsx, md, html) or a picture (png, svg).
    """
    from gemmetry.dispatches.ladder import (
        SIZES,
        ladder_of,
        parse_rungs,
        prepare_ladder,
    )
    from gemmetry.dispatches.ladder_report import ladder_files, print_ladder
    from gemmetry.domain.specs.shapes import parse_sizes
    from gemmetry.engine import run
    from gemmetry.engine.experiment import Experiment
    from gemmetry.results.emit import FORMATS, IMAGES

    options.check((*FORMATS, *IMAGES))
    folder, status = options.folder, 0
    if folder is None:
        plan, folder = prepare_ladder(
            sizes=parse_sizes(options.sizes) if options.sizes else SIZES,
            dtype=options.dtype,
            rungs=parse_rungs(options.rungs) if options.rungs else None,
            configurations=options.configurations,
            device=options.device,
            regime=options.regime,
            experiment=options.experiment,
        )
        summary = watched(partial(run, plan, folder), folder, fresh=options.fresh)
        status = summary.exit_status
        note(f"experiment: {folder}")
        print_failure(summary.failure)
    with Experiment.open(folder) as stored:
        found = ladder_of(stored.result_set())
        options.deliver(ladder_files(found), lambda console: print_ladder(found, console))
    return status


def list_(options: Written) -> None:
    """List the kernels: what each rung of the ladder adds, and its configurations."""
    from gemmetry.engine.catalogue import list_kernels

    options.emit(list_kernels(), _print_list)


def _print_list(table: Table) -> None:
    """Print each kernel with what it adds, and below it the names of its configurations."""
    from textwrap import wrap

    from rich.text import Text

    console = stdout_console()
    width = min(console.width, 100)
    for row in table.records():
        rung = "" if row["rung"] is None else f" (rung {row['rung']})"
        console.print(Text.assemble((row["name"], "bold"), rung))
        for text, style in ((row["adds"], ""), (" ".join(row["configurations"]), "dim")):
            for line in wrap(text, width - 4, break_on_hyphens=False):
                console.print(Text(f"    {line}", style))


kernels_app = group_app(
    "List, check and measure this project's own CUDA kernels.",
    {"list": list_, "check": check, "ladder": ladder},
)
