"""Profiles from Python: takes a spec or keyword values and returns results.

Records the traces of a grid: takes a spec and creates an experiment with one folder per
configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gemmetry.domain.columns import COLUMNS_BY_NAME
from gemmetry.domain.dispatch import Plan, parse_target
from gemmetry.domain.errors import StorageError
from gemmetry.domain.record import Listener, ignore_events
from gemmetry.domain.settings import RECORDED, TraceSchedule
from gemmetry.domain.specs.loader import Known, Place, key_place, load_spec, make_spec
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec, spec_text
from gemmetry.domain.specs.operations import CPU_SQUARES, DEFAULT_SQUARES, Defaults
from gemmetry.domain.specs.planning import make_plan
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.engine.schema import DEFAULT_FOLDER
from gemmetry.providers.base import recording_provider
from gemmetry.results.emit import write_atomically

if TYPE_CHECKING:
    from gemmetry.dispatches.results import Results
    from gemmetry.engine import RunSummary

STORED_SPEC = "spec.yaml"
"""File name of the request that an experiment's folder keeps."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready to run."""

    spec: ProfileSpec
    plan: Plan
    experiment: Path
    notes: tuple[str, ...]
    """Choices and omissions, one sentence each."""


def generated_folder(spec: ProfileSpec) -> Path | None:
    """Folder for sources that are kept outside the experiment; None: there is none."""
    return None if spec.generated_dir is None else Path(spec.generated_dir) / "generated"


def read_spec(
    source: ProfileSpec | str | PathLike[str] | Mapping[str, Any] | None = None,
    values: Mapping[str, Any] = MappingProxyType({}),
    *,
    place: Place = key_place,
) -> ProfileSpec:
    """A spec from a file, a mapping or nothing, with `values` on top; `place` gives the place of a
    mistake in a value.

    Raises:
        SpecError: every mistake, each with its place. RequestError: the file cannot be read.
    """
    known = known_names()
    if isinstance(source, ProfileSpec):
        source = source.model_dump(exclude_unset=True)
    if source is None or isinstance(source, Mapping):
        return make_spec({**(source or {}), **values}, known=known, place=place)
    return load_spec(Path(source), known=known, overrides=values, override_place=place)


def known_names() -> Known:
    """Providers and columns that a spec may name."""
    return {"providers": InstalledCatalogue().provider_names(),
            "columns": (*COLUMNS_BY_NAME, *COLUMN_PRESETS)}  # fmt: skip


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
    generated = generated_folder(spec) if takes_generated else None
    planned = make_plan(spec, InstalledCatalogue(), defaults=defaults, base=base,
                        generated=generated)  # fmt: skip
    return Prepared(spec, planned.plan, _folder(spec, planned.plan), planned.notes)


def _folder(spec: ProfileSpec, plan: Plan) -> Path:
    return Path(spec.experiment or DEFAULT_FOLDER / f"{plan.name}-{plan.hash}")


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
        summary = run(prepared.plan, prepared.experiment, listener=listener, fresh=fresh,
                      command=command, generated=generated_folder(prepared.spec),
                      counters=prepared.spec.counters)  # fmt: skip
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
    if experiment is not None:
        values["experiment"] = str(experiment)
    base = Path(spec).parent if isinstance(spec, str | PathLike) else None
    prepared = prepare(read_spec(spec, values), base=base)
    return _results(prepared, "profile", listener or ignore_events, fresh)


def _results(prepared: Prepared, name: str, listener: Listener, fresh: bool) -> Results:
    from gemmetry.dispatches.results import load

    command = f"{Path(sys.argv[0]).name}: gemmetry.{name}(...)"
    run_prepared(prepared, listener=listener, fresh=fresh, command=command)
    return load(prepared.experiment)


COLUMNS = (
    "trace_folder", "operation", "configuration", "outcome", "trace_operators", "trace_kernels",
    "verification", "reason",
)  # fmt: skip
"""The columns in the table of a recording."""

_NAMES_OPERATIONS = frozenset(("operation_kind", "dispatches"))
_NAMES_FORMATS = frozenset((
    "dtypes", "precisions", "enable_precision_search",
    "layouts", "transpose_a", "transpose_b", "enable_layout_search",
))  # fmt: skip
_NAMES_SHAPES = frozenset((
    "shapes", "conv_shapes", "problem_m", "problem_n", "problem_k", "problem_b", "matrix_sizes",
    "batch_sizes", "enable_size_search", "enable_batch_search", "enable_rectangular",
    "split_k_slices",
))  # fmt: skip


def with_defaults(spec: ProfileSpec) -> ProfileSpec:
    """The defaults of a request to record: the grid tracing document's settings.

    These are its schedule, torch with its default configuration, all precisions and layouts where
    the request names neither, and all square sizes and batches where it names no shape. Where it
    names operations or dispatches, only these are recorded. Results are verified at the level
    ``quick``.
    """
    defaults: dict[str, Any] = {**RECORDED, "columns": COLUMNS}
    given = spec.model_fields_set
    if not spec.kernel:
        defaults["providers"] = (ProviderSpec(name=recording_provider()),)
    if not spec.dispatches:
        defaults["default_config"] = True
    if not (_NAMES_FORMATS | _NAMES_OPERATIONS) & given:
        defaults |= {"enable_precision_search": True, "enable_layout_search": True}
    if not (_NAMES_SHAPES | _NAMES_OPERATIONS) & given:
        defaults |= {
            "enable_size_search": True,
            "enable_batch_search": True,
            "enable_rectangular": False,
            "matrix_sizes": DEFAULT_SQUARES if _is_for_gpu(spec) else CPU_SQUARES,
        }
    silent = {key: value for key, value in defaults.items() if key not in given}
    return spec.model_copy(update=silent)


def _is_for_gpu(spec: ProfileSpec) -> bool:
    if spec.device or spec.cuda_arch:
        return bool(spec.cuda_arch) or any(parse_target(name).is_gpu for name in spec.device)
    catalogue = InstalledCatalogue()
    names = [provider.name for provider in spec.providers] or [recording_provider()]
    return any(
        target.is_gpu and target.index is not None
        for name in names
        if catalogue.unavailable(name, {}) is None
        for target in catalogue.targets(name, {})
    )


def recording(prepared: Prepared) -> Prepared:
    """`prepared` with a plan that records instead of measuring."""
    from gemmetry.engine import trace_plan

    spec, keys = prepared.spec, dict(prepared.spec)
    schedule = TraceSchedule(
        wait_steps=spec.wait_steps,
        warmup_steps=keys["warmup_iterations"],
        active_steps=spec.active_steps or 1,
        repeats=keys["benchmark_repetitions"] or 1,
        chakra_all_steps=spec.chakra_all_steps,
    )
    plan = trace_plan(prepared.plan, schedule)
    return dataclasses.replace(prepared, plan=plan, experiment=_folder(spec, plan))


def record_traces(
    spec: ProfileSpec | str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    experiment: str | PathLike[str] | None = None,
    listener: Listener = ignore_events,
    fresh: bool = False,
    **values: Any,
) -> Results:
    """Record dispatches under torch's profiler, as ``gemmetry trace record`` does.

    The arguments are those of :func:`gemmetry.profile`. Each record of the result has a ``trace``:
    its folder in the experiment, the files there, and the checksums of inputs and output.

    Raises:
        RequestError: the request is wrong; the message lists every mistake.
        EnvironmentFailure: disk full, device lost ...; earlier recordings are kept.
    """
    if experiment is not None:
        values["experiment"] = str(experiment)
    base = Path(spec).parent if isinstance(spec, str | PathLike) else None
    prepared = recording(prepare(with_defaults(read_spec(spec, values)), base=base))
    return _results(prepared, "record_traces", listener, fresh)
