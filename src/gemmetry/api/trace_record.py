"""Records the traces of a grid: takes a spec and creates an experiment with one folder per
configuration."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.api.catalogue import InstalledCatalogue
from gemmetry.api.profile import Prepared, prepare, read_spec, run_prepared
from gemmetry.domain.events import Listener, ignore_events
from gemmetry.domain.settings import TraceSchedule
from gemmetry.domain.target import parse_target
from gemmetry.providers.traits import recording_provider
from gemmetry.specs.model import ProfileSpec, ProviderSpec
from gemmetry.specs.operations.grid import CPU_SQUARES, DEFAULT_SQUARES
from gemmetry.store.places import DEFAULT_FOLDER

if TYPE_CHECKING:
    from gemmetry.api.results import Results

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
    schedule = TraceSchedule()
    defaults: dict[str, Any] = {
        "name": "traces",
        "wait_steps": schedule.wait_steps,
        "warmup_iterations": schedule.warmup_steps,
        "active_steps": schedule.active_steps,
        "benchmark_repetitions": schedule.repeats,
        "verification_level": "quick",
        "columns": COLUMNS,
    }
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
    folder = DEFAULT_FOLDER / f"{plan.name}-{plan.hash}"
    if spec.experiment:
        folder = Path(spec.experiment)
    return dataclasses.replace(prepared, plan=plan, experiment=folder)


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
    from gemmetry.api.results import load

    if experiment is not None:
        values["experiment"] = str(experiment)
    base = Path(spec).parent if isinstance(spec, str | PathLike) else None
    prepared = recording(prepare(with_defaults(read_spec(spec, values)), base=base))
    command = f"{Path(sys.argv[0]).name}: gemmetry.record_traces(...)"
    run_prepared(prepared, listener=listener, fresh=fresh, command=command)
    return load(prepared.experiment)
