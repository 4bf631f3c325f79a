"""Options that commands share, created from the table of spec keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.completion import COMPLETERS
from gemmetry.cli.console import note
from gemmetry.cli.requests import Source
from gemmetry.domain.errors import RequestError
from gemmetry.domain.settings import Form, Key
from gemmetry.specs.keys import KEYS, PANELS, RETIRED
from gemmetry.specs.operations.ranges import split_files

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

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
            from gemmetry.cli.dry_run import print_plan

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
