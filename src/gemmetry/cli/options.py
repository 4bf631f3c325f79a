"""Options of commands: each is declared once, as a field of a dataclass (its options struct).

A command is a function of one struct. :func:`build_command` makes its options, arguments, help and
completion; groups of options that commands share are structs that others inherit from. The keys of
a spec are options of every command that takes a request.

:class:`WorkbenchCommand` converts arguments as the dispatch profiler's documents write them to the
form that typer parses: ``--flag=true``, ``--flag true``, ``--flag a b c``, ``--under_scores`` and
old names.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Optional,
    TypeAlias,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperOption

from gemmetry.cli.console import (
    Found,
    Source,
    check_outputs,
    note,
    print_facts,
    print_json,
    say,
    stdout_console,
    write_outputs,
)
from gemmetry.cli.main import PARSER_ERROR, PlainHelp
from gemmetry.domain.errors import RequestError
from gemmetry.domain.options import (
    DECLARED,
    KEYS,
    PANELS,
    RETIRED,
    SETTINGS,
    USUAL,
    Declared,
    Retired,
    first_type,
    split_files,
)
from gemmetry.domain.options import argument as argument
from gemmetry.domain.options import option as option
from gemmetry.domain.settings import Form, Key

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.dispatches.profile import Prepared
    from gemmetry.domain.tables import Table


Completer: TypeAlias = Callable[[str], list[str]]


def _list(*names: str) -> Completer:
    """Completes the last item of a comma-separated list of `names`; ``package.module:name`` stands
    for the names there, or those that this function returns."""

    def complete(incomplete: str) -> list[str]:
        done, comma, part = incomplete.rpartition(",")
        known: list[str] = []
        for one in names:
            found: Any = one
            if place := _PLACE.fullmatch(one):
                found = getattr(importlib.import_module(f"gemmetry.{place[1]}"), place[2])
                found = found() if inspect.isfunction(found) else found
            known += [found] if isinstance(found, str) else found
        given = set(done.split(","))
        return [f"{done}{comma}{n}" for n in known if n.startswith(part) and n not in given]

    return complete


_PLACE = re.compile(r"(\w+\.[\w.]+):(\w+)")
_NAMES: dict[str, tuple[str, ...]] = {
    "providers": ("providers.registry:provider_names",),
    "baseline": ("providers.registry:provider_names", "providers.base:best_baseline"),
    **dict.fromkeys(
        ("dtypes", "precisions", "result_dtype", "accumulator"), ("domain.operation:DTYPES",)
    ),
    "operation_kind": ("all", "domain.operation:OperationKind"),
    "layouts": ("tt", "tn", "nt", "nn"),
    "epilogues": ("none", "domain.operation:EpilogueStep"),
    "shapes": ("domain.specs.shapes:PRESETS",),
    "columns": ("gemmetry", "summary", "dispatch-profiler", "domain.columns:COLUMNS_BY_NAME"),
    "device": ("cpu", "cuda", "cuda:0", "cuda:1", "cuda-sm_80", "hip", "vulkan"),
    "format": ("table", "block", "csv", "md", "none"),
    "scaling": ("none", "tensor", "row", "vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128"),
    "result_layout": ("t", "n"),
    "verification_providers": ("numpy", "device"),
}
COMPLETERS: dict[str, Completer] = {
    **{key.name: _list(*names) for key in SETTINGS if (names := key.choices or key.names)},
    **{name: _list(*names) for name, names in _NAMES.items()},
}
"""Key of a spec -> its completion."""


LEGACY_DEFAULTS = {
    "operation_kind": "matmul, matmul_splitk, batch_matmul",
    "shapes": "those of the dispatch profiler",
    "dtypes": "f16, f32 and f16:f16:f32",
    "split_k_slices": "2, 4, 16",
    "providers": "iree",
    "device": "cuda-sm_80",
    "dispatches": "the dispatch profiler's 109, or all on other devices",
}
"""Help's copy of ``specs.operations.defaults.legacy``, whose imports help must not load."""


def _parameter(declared: Declared, name: str, kind: Any) -> inspect.Parameter:
    """The parameter of typer's function for the field `name`, whose values are a `kind`."""
    is_list = get_origin(kind) in (list, tuple, dict) and not declared.is_argument
    default: Any = False if kind is bool else inspect.Parameter.empty
    if type(None) in get_args(kind) or is_list:
        default = None
    if declared.default is not USUAL:
        default = declared.default
    kind = first_type(kind, declared.parse)
    if default is None:
        kind = Optional[kind]  # noqa: UP045  # `kind` is not written out
    more = dict(declared.more)
    if declared.is_argument:
        info = typer.Argument(**more)
    else:
        more.setdefault("show_default", "Default:" not in more["help"])
        info = typer.Option(*declared.names(name), **more)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


@dataclass_transform(kw_only_default=True)
class Options:
    """Base class of options structs. A subclass is a dataclass with keyword-only fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(kw_only=True)(cls)


def request(defaults: Mapping[str, Any] = MappingProxyType({}), *, saves: bool = True) -> Any:
    """A field of an options struct that receives a request: the command has the options of spec
    files, and one for every key of a spec that is no option of its own.

    Args:
        defaults: defaults of keys that differ in this command from those in specs, for its help.
        saves: whether the request can be written to a file.
    """
    return field(metadata={DECLARED: Request(defaults, saves)})


class SpecFiles(Options):
    """The options of spec files."""

    PANEL: ClassVar = "Spec files"

    spec: Path | None = option(
        "Read a YAML spec (-: standard input); options override its keys.", "FILE"
    )
    save_spec: Path | None = option("Write this request as a YAML spec.", "FILE")
    set: list[str] = option(
        "Set any key of the spec to a YAML value, as in --set deadlines.compile=60.",
        "KEY=VALUE",
    )


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a request; see :func:`request`."""

    defaults: Mapping[str, Any]
    saves: bool

    def files(self) -> list[inspect.Parameter]:
        """Options that say where a request comes from, and where to keep it."""
        return [
            _parameter(declared, name, kind)
            for name, (declared, kind) in _fields(SpecFiles).items()
            if self.saves or name != "save_spec"
        ]

    def keys(self, taken: Container[str]) -> list[inspect.Parameter]:
        """An option for each key, and hidden ones for those without effect."""
        return [
            *(self._key(key) for panel in PANELS for key in KEYS.values()
              if key.panel == panel and key.form is not Form.SPEC_ONLY and key.name not in taken),
            *map(_retired, RETIRED),
        ]  # fmt: skip

    def _key(self, key: Key) -> inspect.Parameter:
        names = [key.option, key.short] if key.short else [key.option]
        if key.form is Form.FLAG:
            names = [f"{key.option}/--no-{key.option.removeprefix('--')}"]
        also = ", ".join(f"--{alias.replace('_', '-')}" for alias in key.aliases)
        more = {
            "metavar": key.metavar or None,
            "help": key.help(self.defaults.get(key.name)) + (f" (also {also})" if also else ""),
            "rich_help_panel": key.panel,
            "autocompletion": COMPLETERS.get(key.name),
        }
        kind = {Form.TEXT: str, Form.LIST: list[str], Form.FLAG: bool}[key.form]
        return _parameter(Declared(tuple(names), None, more=more), key.name, kind)

    def source(self, values: dict[str, Any]) -> Source:
        """The request of the given options; `values` are the options of :meth:`files` and
        :meth:`keys`."""
        for old in RETIRED:
            if value := values.pop(old.option.removeprefix("--").replace("-", "_")):
                if old.option == "--mlir-dialect" and value != "linalg":
                    raise RequestError(
                        f"{old.option} {value}: linalg is the only dialect that is generated",
                        hint=f"Write {old.option} linalg, or leave it out.",
                    )
                note(f"note: {old.option} has no effect: {old.reason}")
        spec, settings = values.pop("spec"), values.pop("set") or ()
        save = values.pop("save_spec", None)
        given = {name: values.pop(name) for name in KEYS if name in values}
        given = {name: value for name, value in given.items() if value not in (None, [])}
        return Source(given=given, spec=spec, settings=settings, save=save)


def _retired(old: Retired) -> inspect.Parameter:
    name = old.option.removeprefix("--")
    opposite = "" if old.takes_value else f"/--no-{name}"
    more = {"hidden": True, "help": f"No effect: {old.reason}."}
    declared = Declared((f"{old.option}{opposite}", *old.aliases), None, more=more)
    return _parameter(declared, name.replace("-", "_"), str if old.takes_value else bool)


def _fields(struct: Any) -> dict[str, tuple[Any, Any]]:
    """Name -> declaration and type of each field, those of the struct itself before inherited."""
    kinds = get_type_hints(struct)
    declared = {one.name: one.metadata[DECLARED] for one in fields(struct)}
    found: dict[str, tuple[Any, Any]] = {}
    for owner in struct.__mro__:
        panel = vars(owner).get("PANEL")
        for name in inspect.get_annotations(owner):
            if name in declared and name not in found:
                one = declared[name]
                if panel is not None:
                    one = replace(one, more={"rich_help_panel": panel, **one.more})
                found[name] = (one, kinds[name])
    return found


def values(options: Any, struct: Any) -> dict[str, Any]:
    """Values in `options` of the fields of `struct`, a base class of it."""
    return {one.name: getattr(options, one.name) for one in fields(struct)}


def build_command(name: str, function: Callable[..., Any]) -> Any:
    """The command `name` that calls `function` with its options struct, if it takes one.

    The help is the docstring of `function`; the options are the fields of the struct that its
    parameter is annotated with, and its return value is the exit status. The struct's attribute
    ``command_class`` replaces :class:`WorkbenchCommand`.
    """
    struct = next(iter(get_type_hints(function).values()), None)
    declared = _fields(struct) if is_dataclass(struct) else {}
    requests = {key: one for key, (one, _) in declared.items() if isinstance(one, Request)}
    own = {key: found for key, found in declared.items() if key not in requests}

    def run(**given: Any) -> Any:
        found = {key: one.value(key, kind, given.pop(key)) for key, (one, kind) in own.items()}
        found |= {key: one.source(given) for key, one in requests.items()}
        return function(struct(**found)) if struct else function()

    parameters = [_parameter(one, key, kind) for key, (one, kind) in own.items()]
    for one in requests.values():
        parameters = [*one.files(), *parameters, *one.keys(own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = function.__doc__
    app = typer.Typer(add_completion=False)
    app.command(name, cls=getattr(struct, "command_class", WorkbenchCommand))(run)
    return typer.main.get_command(app)


def split_outputs(files: list[Path], option: str) -> list[Path]:
    """``-o a.csv,b.json`` as two files."""
    return [Path(part) for file in files for part in split_files(str(file))]


def split_names(texts: list[str], option: str) -> list[str]:
    """Names, separated by commas or spaces or given one by one."""
    return [part for text in texts for part in text.replace(",", " ").split()]


def parse_share(text: str, option: str) -> float:
    """``5%`` or ``0.05``, as a number."""
    from gemmetry.domain.units import parse_share

    return parse_share(text)


def parse_duration(text: str, option: str) -> float:
    """``5min`` or ``300s``, in seconds."""
    from gemmetry.domain.units import parse_duration_s

    return parse_duration_s(text)


def threshold(usual: str, **more: Any) -> Any:
    """The option ``--threshold`` of a comparison, with what applies without it."""
    text = f"Relative differences up to this are ignored: 5% or 0.05. Default: {usual}."
    return option(text, "SHARE", parse=parse_share, **more)


class Undecided(StrEnum):
    """Effect of a comparison without a verdict on the exit status."""

    FAIL = "fail"
    PASS = "pass"


def outputs(*more: str) -> Any:
    """The option ``--output`` of files whose formats are those of tables, and `more`."""
    suffixes = ", ".join(("csv", "json", "parquet", "xlsx", "md", "html", *more))
    return output_files(f"Write a file; the suffix picks {suffixes}.")


def output_files(help: str, **more: Any) -> Any:
    """The option ``--output`` of files, several of which may be separated by commas."""
    return option(help, "-o FILE", parse=split_outputs, **more)


class Printed(Options):
    """The options of a command that prints something."""

    json: bool = option("Print one JSON document, and nothing else, on stdout.")

    def state(self, text: str, /, **facts: Any) -> None:
        """Print what was done: `text`, or a document of `facts`."""
        if self.json:
            print_facts(**facts)
        else:
            say(text)

    def emit(self, table: Table, show: Callable[[Table], None] | None = None) -> None:
        """Print `table`, as a table unless `show` does, and write it to each file.

        Raises:
            RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
        """
        from gemmetry.results.emit import of_table

        def show_table(console: Console) -> None:
            from gemmetry.dispatches.terminal import print_table

            print_table(table, console)

        check_outputs(getattr(self, "output", ()))
        self.deliver(of_table(table), show_table if show is None else lambda _: show(table))

    def deliver(self, found: Found, show: Callable[[Console], None]) -> None:
        """Print what was found, as a document or for a reader, and write it to each file."""
        if not self.json:
            show(stdout_console())
        elif getattr(self, "brief", False):
            from gemmetry.results.emit import Result

            print_json(found.brief() if isinstance(found, Result) else found.document(), indent=-1)
        else:
            print_json(found.document())
        write_outputs(found, getattr(self, "output", ()))


class Written(Printed):
    """The options of a command that prints something, and writes it to files."""

    output: list[Path] = outputs()

    def check(self, suffixes: Iterable[str] = (), *, draws: bool = False) -> None:
        """Refuse files that could not be written; see :func:`check_outputs`."""
        check_outputs(self.output, suffixes, draws=draws)


class Brief(Options):
    """The option of a command whose document may be long."""

    brief: bool = option("With --json: at most 4 KB, what matters most.")


class Compared(Written):
    """The options of a command whose result may be a JUnit file."""

    output: list[Path] = outputs("xml (JUnit)")


class Drawn(Written):
    """The options of a command whose result may be a picture."""

    output: list[Path] = outputs("png", "svg")


class WithBaseline(Options):
    """The option of a command that compares dispatches with a baseline."""

    baseline: str | None = option(KEYS["baseline"].help(), "NAME", complete=COMPLETERS["baseline"])


class Restartable(Options):
    """The option of a command that resumes what it began."""

    fresh: bool = option("Start over instead of resuming the experiment in the folder.")


class DryRun(Options):
    """The option of a command that can show what it would do."""

    dry_run: bool = option("Show what would run, and stop.")


class Verbose(Options):
    """The option of a command that reports what it does."""

    verbose: bool = option("Also report stages, choices and commands.", "--verbose -v")


class Planned(DryRun, Restartable, Printed, Verbose):
    """The options of a command that runs a plan."""

    source: Source = request()

    def begin(self) -> None:
        """Have what workers import loaded while the plan is made."""
        from gemmetry.engine.process import import_early

        if not self.dry_run:
            import_early()

    def run(self, prepared: Prepared) -> int:
        """Run a plan, or show it with ``--dry-run``; return the exit status."""
        from gemmetry.cli.console import print_plan, run_and_report

        if self.dry_run:
            print_plan(prepared, as_json=self.json)
            return 0
        return run_and_report(prepared, fresh=self.fresh, json=self.json, verbose=self.verbose)


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
            may_follow = value is None and not has_arguments and waiting
            if may_follow and waiting[-1].lower() in TRUE | FALSE:
                value = waiting.pop()
            yield _flag(name, value, option)
        elif value is None and (bare := _bare(name, option, waiting)):
            yield f"{name}={bare}"
        elif value is None and not waiting:
            yield name
        else:
            yield f"{name}={waiting.pop() if value is None else value}"
            while option.multiple and not has_arguments and waiting and _is_value(waiting[-1]):
                yield f"{name}={waiting.pop()}"


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


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NEGATIVE_NUMBER.match(word) is not None
