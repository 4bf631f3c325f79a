"""Shell completion of options' values; each completer imports only what it needs.

Options that commands share, created from the table of spec keys.

Converts arguments as the dispatch profiler's documents write them to the form that typer parses.

``--flag=true``, ``--flag true``, ``--flag a b c``, ``--under_scores`` and old names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from gemmetry.cli.console import note
from gemmetry.cli.main import PARSER_ERROR, PlainHelp
from gemmetry.cli.run import Source
from gemmetry.domain.errors import RequestError
from gemmetry.domain.settings import Form, Key
from gemmetry.domain.specs.keys import KEYS, PANELS, RETIRED, SETTINGS
from gemmetry.domain.specs.ranges import split_files

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared


def _list(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes the last item of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        done, comma, part = incomplete.rpartition(",")
        given = set(done.split(","))
        return [
            f"{done}{comma}{name}"
            for name in names()
            if name.startswith(part) and name not in given
        ]

    return complete


def _providers() -> Iterable[str]:
    from gemmetry.providers.registry import provider_names

    return provider_names()


def _baselines() -> Iterable[str]:
    from gemmetry.providers.base import best_baseline

    return [*_providers(), best_baseline()]


def _dtypes() -> Sequence[str]:
    from gemmetry.domain.operation import DTYPES

    return list(DTYPES)


def _kinds() -> Sequence[str]:
    from gemmetry.domain.operation import OperationKind

    return [*OperationKind, "all"]


def _epilogues() -> Sequence[str]:
    from gemmetry.domain.operation import EpilogueStep

    return ["none", *EpilogueStep]


def _presets() -> Sequence[str]:
    from gemmetry.domain.specs.shapes import PRESETS

    return list(PRESETS)


def _columns() -> Sequence[str]:
    from gemmetry.domain.columns import COLUMNS_BY_NAME

    return ["gemmetry", "summary", "dispatch-profiler", *COLUMNS_BY_NAME]


def _fixed(*names: str) -> Callable[[], Sequence[str]]:
    return lambda: names


def complete_names(*names: str) -> Callable[[str], list[str]]:
    """Completes an option that takes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


_DTYPE_LIST = _list(_dtypes)

COMPLETERS: dict[str, Callable[[str], list[str]]] = {
    **{key.name: _list(_fixed(*names)) for key in SETTINGS if (names := key.choices or key.names)},
    "providers": _list(_providers),
    "baseline": _list(_baselines),
    "dtypes": _DTYPE_LIST,
    "precisions": _DTYPE_LIST,
    "result_dtype": _DTYPE_LIST,
    "accumulator": _DTYPE_LIST,
    "operation_kind": _list(_kinds),
    "layouts": _list(_fixed("tt", "tn", "nt", "nn")),
    "epilogues": _list(_epilogues),
    "shapes": _list(_presets),
    "columns": _list(_columns),
    "device": _list(_fixed("cpu", "cuda", "cuda:0", "cuda:1", "cuda-sm_80", "hip", "vulkan")),
    "format": _list(_fixed("table", "block", "csv", "md", "none")),
    "scaling": _list(
        _fixed("none", "tensor", "row", "vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128")
    ),
    "result_layout": _list(_fixed("t", "n")),
    "verification_providers": _list(_fixed("numpy", "device")),
}
"""Key of a spec -> its completion."""


def option(*names: str, panel: str, choices: tuple[str, ...] = (), **more: Any) -> Any:
    """An option of this panel of the help, whose value is completed from `choices`."""
    completer = complete_names(*choices) if choices else None
    return typer.Option(*names, rich_help_panel=panel, autocompletion=completer, **more)


SPEC_PANEL = "Spec files"

LEGACY_DEFAULTS = {
    "operation_kind": "matmul, matmul_splitk, batch_matmul",
    "shapes": "those of the dispatch profiler",
    "dtypes": "f16, f32 and f16:f16:f32",
    "split_k_slices": "2, 4, 16",
    "providers": "iree",
    "device": "cuda-sm_80",
    "dispatches": "the dispatch profiler's 109, or all on other devices",
}
"""What help shows of ``specs.operations.defaults.legacy``: it must not load what that needs."""


def split_outputs(files: list[Path] | None) -> list[Path] | None:
    """``-o a.csv,b.json`` as two files."""
    if files is None:
        return None
    return [Path(part) for file in files for part in split_files(str(file))]


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on stdout.")
]


def _outputs(*more: str) -> Any:
    suffixes = ", ".join(("csv", "json", "parquet", "xlsx", "md", "html", *more))
    return typer.Option("--output", "-o", metavar="FILE", callback=split_outputs,
                        help=f"Write a file; the suffix picks {suffixes}.")  # fmt: skip


Outputs = Annotated[list[Path] | None, _outputs()]
ComparisonOutputs = Annotated[list[Path] | None, _outputs("xml (JUnit)")]
DrawingOutputs = Annotated[list[Path] | None, _outputs("png", "svg")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="NAMES",
        autocompletion=COMPLETERS["columns"],
        help=KEYS["columns"].help(),
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="NAME", autocompletion=COMPLETERS["baseline"],
        help=KEYS["baseline"].help(),
    ),
]  # fmt: skip
Experiment = Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="Folder of an experiment.")]
SpecFile = Annotated[
    Path | None,
    typer.Option("--spec", metavar="FILE", rich_help_panel=SPEC_PANEL,
                 help="Read a YAML spec (-: standard input); options override its keys."),
]  # fmt: skip
SaveSpec = Annotated[
    Path | None,
    typer.Option("--save-spec", metavar="FILE", rich_help_panel=SPEC_PANEL,
                 help="Write this request as a YAML spec."),
]  # fmt: skip
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", rich_help_panel=SPEC_PANEL,
                 help="Set any key of the spec to a YAML value, as in --set deadlines.compile=60."),
]  # fmt: skip
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and stop.")]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Start over instead of resuming the experiment in the folder."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also report stages, choices and commands.")
]


_SOURCE = {"spec": SpecFile, "save_spec": SaveSpec, "set": Settings}
"""Options that say where a request comes from, and where to keep it."""


def with_request(
    command: Callable[..., None],
    *,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    saves: bool = True,
) -> Callable[..., None]:
    """Give `command` the options of spec files, and one for every key of a spec.

    Its parameter `source` receives the request; its other parameters are options of its own.

    Args:
        defaults: defaults of keys that differ in this command from those in specs, for its help.
        saves: whether the request can be written to a file.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values()
           if p.name != "source"]  # fmt: skip
    files = [
        _optional(name, kind) for name, kind in _SOURCE.items() if saves or name != "save_spec"
    ]
    taken = {parameter.name for parameter in own}
    offered = [key for key in KEYS.values()
               if key.form is not Form.SPEC_ONLY and key.name not in taken]  # fmt: skip
    keys = [key for panel in PANELS for key in offered if key.panel == panel]
    parameters = [_parameter(key, defaults) for key in keys]
    retired = {_name(old.option): old for old in RETIRED}

    def wrapper(**values: Any) -> None:
        for name, old in retired.items():
            value = values.pop(name)
            if value:
                _check_retired(old.option, value)
                note(f"note: {old.option} has no effect: {old.reason}")
        given = {key.name: values.pop(key.name) for key in keys if key.name in values}
        source = Source(
            given={name: value for name, value in given.items() if value not in (None, [])},
            spec=values.pop("spec"),
            settings=values.pop("set") or (),
            save=values.pop("save_spec", None),
        )
        command(source=source, **values)

    signature = [*files, *own, *parameters, *(_retired_parameter(name) for name in retired)]
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature]
    )
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    return wrapper


def runs_plan(
    prepare: Callable[[Source], Prepared], *, defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., None]:
    """The command that runs, or with ``--dry-run`` shows, the plan that `prepare` returns; its help
    is the docstring of `prepare`. For `defaults` see :func:`with_request`."""

    def command(
        source: Source,
        dry_run: DryRun = False,
        fresh: Fresh = False,
        json: Json = False,
        verbose: Verbose = False,
    ) -> None:
        from gemmetry.cli.run import run_and_report

        prepared = prepare(source)
        if dry_run:
            from gemmetry.cli.results import print_plan

            print_plan(prepared, as_json=json)
            return
        raise typer.Exit(run_and_report(prepared, fresh=fresh, json=json, verbose=verbose))

    command.__name__, command.__doc__ = prepare.__name__, prepare.__doc__
    return with_request(command, defaults=defaults)


def _optional(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _parameter(key: Key, defaults: Mapping[str, Any]) -> inspect.Parameter:
    annotation: Any = {Form.TEXT: str | None, Form.LIST: list[str] | None, Form.FLAG: bool | None}[
        key.form
    ]
    declaration = [key.option, key.short] if key.short else [key.option]
    if key.form is Form.FLAG:
        declaration = [f"{key.option}/--no-{key.option.removeprefix('--')}"]
    option = typer.Option(
        *declaration,
        metavar=key.metavar or None,
        help=key.help(defaults.get(key.name)) + _aliases(key),
        rich_help_panel=key.panel,
        autocompletion=COMPLETERS.get(key.name),
    )
    return _optional(key.name, Annotated[annotation, option])


def _aliases(key: Key) -> str:
    names = [f"--{alias.replace('_', '-')}" for alias in key.aliases]
    return f" (also {', '.join(names)})" if names else ""


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _retired_parameter(name: str) -> inspect.Parameter:
    old = next(old for old in RETIRED if _name(old.option) == name)
    opposite = "" if old.takes_value else f"/--no-{old.option.removeprefix('--')}"
    annotation: Any = str | None if old.takes_value else bool | None
    option = typer.Option(
        f"{old.option}{opposite}", *old.aliases, hidden=True, help=f"No effect: {old.reason}."
    )
    return _optional(name, Annotated[annotation, option])


def _check_retired(option: str, value: object) -> None:
    if option == "--mlir-dialect" and value != "linalg":
        raise RequestError(
            f"{option} {value}: linalg is the only dialect that is generated",
            hint=f"Write {option} linalg, or leave it out.",
        )


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
