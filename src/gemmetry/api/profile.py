"""Profiles from Python: takes a spec or keyword values and returns results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.domain.errors import StorageError

# Specs take a tenth of a second to import, and reading traces does not need them.
if TYPE_CHECKING:
    from gemmetry.api.results import Results
    from gemmetry.domain.dispatch import Plan
    from gemmetry.domain.events import Listener
    from gemmetry.engine import RunSummary
    from gemmetry.specs.loader import Known, Place
    from gemmetry.specs.model import ProfileSpec
    from gemmetry.specs.operations.defaults import Defaults

STORED_SPEC = "spec.yaml"
"""File name of the request that an experiment's folder keeps."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready to run."""

    spec: ProfileSpec
    plan: Plan
    experiment: Path
    notes: tuple[str, ...]
    """What was chosen or left out, one sentence each."""

    @property
    def generated(self) -> Path | None:
        """Folder for sources; None: the experiment."""
        return generated_folder(self.spec)


def generated_folder(spec: ProfileSpec) -> Path | None:
    """Folder for sources that are kept outside the experiment; None: there is none."""
    return None if spec.generated_dir is None else Path(spec.generated_dir) / "generated"


def read_spec(
    source: ProfileSpec | str | PathLike[str] | Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    known: Known | None = None,
    place: Place | None = None,
) -> ProfileSpec:
    """A spec from a file, a mapping or nothing, with `values` on top; `place` gives the place of a
    mistake in a value.

    Raises:
        SpecError: every mistake, each with its place. RequestError: the file cannot be read.
    """
    from gemmetry.specs.loader import key_place, load_spec, make_spec
    from gemmetry.specs.model import ProfileSpec

    known, place = known or known_names(), place or key_place
    values = dict(values or {})
    if isinstance(source, ProfileSpec):
        source = source.model_dump(exclude_unset=True)
    if source is None or isinstance(source, Mapping):
        return make_spec({**(source or {}), **values}, known=known, place=place)
    return load_spec(Path(source), known=known, overrides=values, override_place=place)


def known_names() -> Known:
    """Providers and columns that a spec may name."""
    from gemmetry.api.catalogue import InstalledCatalogue
    from gemmetry.domain.columns import COLUMNS_BY_NAME
    from gemmetry.specs.loader import Known

    return Known(
        providers=InstalledCatalogue().provider_names(),
        columns=(*COLUMNS_BY_NAME, *COLUMN_PRESETS),
    )


COLUMN_PRESETS = ("gemmetry", "all", "summary", "dispatch-profiler")
"""Names that stand for several columns; ``all`` is another name of ``gemmetry``."""


def prepare(
    spec: ProfileSpec,
    *,
    defaults: Defaults | None = None,
    base: Path | None = None,
    takes_generated: bool = True,
) -> Prepared:
    """The plan and the folder of `spec`; nothing runs and nothing is written.

    `takes_generated`: where `spec` names no problem, the plan is what ``generate`` wrote into its
    ``generated_dir``.

    Raises:
        RequestError: what is requested does not exist or does not fit.
    """
    from gemmetry.api.catalogue import InstalledCatalogue
    from gemmetry.specs.planning import make_plan
    from gemmetry.store.places import DEFAULT_FOLDER

    generated = generated_folder(spec) if takes_generated else None
    planned = make_plan(
        spec, InstalledCatalogue(), defaults=defaults, base=base, generated=generated
    )
    folder = Path(spec.experiment) if spec.experiment else None
    if folder is None:
        folder = DEFAULT_FOLDER / f"{planned.plan.name}-{planned.plan.hash}"
    return Prepared(spec, planned.plan, folder, planned.notes)


def run_prepared(
    prepared: Prepared, *, listener: Listener, fresh: bool, command: str
) -> RunSummary:
    """Run the plan, and store the request in the experiment, from which reports take the
    presentation of the results.

    Raises:
        EnvironmentFailure: disk full, device lost ...; earlier results are kept.
    """
    from gemmetry.engine import run

    try:
        summary = run(
            prepared.plan,
            prepared.experiment,
            listener=listener,
            fresh=fresh,
            command=command,
            generated=prepared.generated,
            counters=prepared.spec.counters,
        )
    except BaseException:
        with contextlib.suppress(StorageError):  # the error that ended the run is more informative
            _keep_request(prepared)
        raise
    _keep_request(prepared)
    return summary


def _keep_request(prepared: Prepared) -> None:
    if (prepared.experiment / "manifest.json").is_file():
        write_spec(prepared.spec, prepared.experiment / STORED_SPEC)


def write_spec(spec: ProfileSpec, path: Path) -> None:
    """Write `spec` as YAML.

    Raises:
        RequestError: `path` is a folder. StorageError: the file cannot be written; an older one is
            unchanged.
    """
    from gemmetry.reports.tables.files import write_atomically
    from gemmetry.specs.writer import spec_text

    if not path.absolute().parent.is_dir():
        raise StorageError(
            f"cannot write the spec {path}: its folder does not exist",
            hint="Create the folder, or choose another path.",
        )
    write_atomically(path, spec_text(spec).encode())


def stored_baseline(experiment: Path) -> str | None:
    """The baseline that the experiment's last request named; None if it named none.

    Raises:
        SpecError: the request that the experiment holds was edited and is wrong.
    """
    from gemmetry.specs.loader import load_spec

    path = experiment / STORED_SPEC
    # Earlier versions wrote only comments for a request without a key.
    return load_spec(path, may_be_empty=True).baseline if path.is_file() else None


def profile(
    spec: ProfileSpec | str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    experiment: str | PathLike[str] | None = None,
    listener: Listener | None = None,
    fresh: bool = False,
    **values: Any,
) -> Results:
    """Generate, compile, verify and measure dispatches.

    `spec` is a spec file's path, a mapping or a ProfileSpec; `values` are further keys, which win:
    ``profile(shapes="512x512x512", dtypes=["f32", "bf16"], providers="torch,numpy")``. Results are
    stored in the folder `experiment`, from which a run resumes; `fresh` starts over.

    Raises:
        RequestError: the request is wrong; the message lists every mistake.
        EnvironmentFailure: disk full, device lost ...; earlier results are kept.
    """
    from gemmetry.api.results import load
    from gemmetry.domain.events import ignore_events

    if experiment is not None:
        values["experiment"] = str(experiment)
    is_file = isinstance(spec, str | PathLike)
    base = Path(spec).parent if is_file else None  # type: ignore[arg-type]
    prepared = prepare(read_spec(spec, values), base=base)
    command = f"{Path(sys.argv[0]).name}: gemmetry.profile(...)"
    run_prepared(prepared, listener=listener or ignore_events, fresh=fresh, command=command)
    return load(prepared.experiment)
