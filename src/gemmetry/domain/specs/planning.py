"""The providers of this machine, as the caller describes them; specs themselves look nothing up.

Resolves the providers and devices that a request names against those that exist here.

Converts a spec into a plan: existing providers and targets, operations, selection, settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.dispatch import (
    Plan,
    ProviderRequest,
    Target,
    TargetKind,
    parse_shard,
    parse_target,
)
from gemmetry.domain.errors import RequestError, Stage, UnknownNameError
from gemmetry.domain.options import SETTINGS
from gemmetry.domain.settings import RAY, USUAL_SAMPLES, Resume, RunSettings, check_executor
from gemmetry.domain.specs.fields import setting_values
from gemmetry.domain.specs.generated import (
    Generated,
    Reused,
    names_a_problem,
    nothing_left,
    read_generated,
    reuse,
    wanted_of,
)
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.specs.operations import Defaults, expand, first_run
from gemmetry.domain.specs.selection import (
    PatternSelection,
    is_regex_by_its_look,
    named_dispatch,
    parse_pattern,
    pattern_operation,
)


class Catalogue(Protocol):
    """Answers about providers. Each answer may cost an import, so only the needed ones should be
    requested."""

    def provider_names(self) -> Collection[str]:
        """Names of all providers, without loading any; iteration leaves out unlisted ones."""

    def traits(self, name: str) -> ProviderTraits:
        """The traits of a provider, which are known without loading it."""

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        """None if the provider works here, else the reason and what to install."""

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        """The devices it runs on here, and architectures it compiles for (``index`` None)."""


_BEST_FIRST = (TargetKind.CUDA, TargetKind.HIP, TargetKind.CPU, TargetKind.VULKAN, TargetKind.NULL)


def resolve_targets(
    spec: ProfileSpec,
    requests: Sequence[ProviderRequest],
    catalogue: Catalogue,
    defaults: Defaults | None,
    entries: Sequence[Generated] = (),
) -> tuple[list[Target], list[str]]:
    """The requested devices or architectures, or the best device of the providers in question; for
    generated dispatches (`entries`), the devices for which they were written.

    Raises:
        RequestError: a device is not here, or no provider works here.
    """
    names = list(spec.device)
    if not names:
        # ``--devices`` alone makes the first device the target, which the others join, or
        # architectures, which have no device to distribute anything over.
        serving = list(getattr(spec, "devices", ()))  # a key of a run, which has no static type
        for name in serving:
            if name.isdigit():
                raise RequestError(
                    f"--devices {name}: a number names no device",
                    hint="Name the devices, as in --devices cuda:0,cuda:1.",
                )
        is_ahead = any(one != "all" and parse_target(one).index is None for one in serving)
        names = serving if is_ahead else [name for name in serving[:1] if name != "all"]
    chosen = []
    if not names and spec.cuda_arch:
        names = ["cuda"]
    elif not names and defaults is not None and entries:
        names = list(dict.fromkeys(entry.target for entry in entries))
    elif not names and defaults is not None and defaults.device is not None:
        names = [defaults.device]
        chosen = [f"device: {defaults.device} (--device picks another)"]
    if names == ["cpu"]:
        return [Target(TargetKind.CPU)], []
    found = _known_targets(requests, catalogue)
    if names:
        targets, notes = _named_targets(spec, names, found, compiles_only=defaults is not None)
        return targets, [*chosen, *notes]
    devices = [target for target in found if target.index is not None]
    if not devices:
        reasons = [catalogue.unavailable(request.name, request.options) for request in requests]
        why = "; ".join(reason for reason in reasons if reason)
        raise RequestError(
            f"no device of this machine suits {' or '.join(request.name for request in requests)}"
            + (f": {why}" if why else ""),
            hint="`gemmetry doctor` shows what is missing; --device cuda-sm_80 only compiles.",
        )
    kinds = {entry.kind for entry in entries}
    devices = [target for target in devices if target.kind in kinds] or devices
    best = min(devices, key=lambda target: (_BEST_FIRST.index(target.kind), target.index or 0))
    return [best], [f"device: {best.device} (--device picks another)"]


def _known_targets(requests: Sequence[ProviderRequest], catalogue: Catalogue) -> list[Target]:
    requested = {request.name: request.options for request in requests}
    if all(catalogue.traits(name).takes_kernels for name in requested):
        # A user's kernel may run wherever its baseline does.
        names = (name for name in catalogue.provider_names() if catalogue.traits(name).is_default)
        requested |= {name: {} for name in names}
    targets: dict[Target, None] = {}
    for name, options in requested.items():
        if name not in catalogue.provider_names():
            raise UnknownNameError("provider", name, catalogue.provider_names())
        if catalogue.unavailable(name, options) is None:
            targets.update(dict.fromkeys(catalogue.targets(name, options)))
    return list(targets)


def _named_targets(
    spec: ProfileSpec, names: Sequence[str], known: Sequence[Target], *, compiles_only: bool
) -> tuple[list[Target], list[str]]:
    notes: list[str] = []
    targets: dict[Target, None] = {}
    for name in names:
        wanted = parse_target(name)
        if spec.cuda_arch and wanted.kind is TargetKind.CUDA and wanted.index is not None:
            has_device = any(t.kind is TargetKind.CUDA and t.index is not None for t in known)
            if compiles_only or not has_device:
                wanted = Target(TargetKind.CUDA, spec.cuda_arch, None)
            else:
                notes.append(
                    f"cuda_arch {spec.cuda_arch} is left to the providers: {wanted.device} is "
                    f"here (--device cuda-{spec.cuda_arch} compiles for it and runs nothing)"
                )
        targets[_find(wanted, known, compiles_only=compiles_only)] = None
    return list(targets), notes


def _find(wanted: Target, known: Sequence[Target], *, compiles_only: bool) -> Target:
    if wanted.index is None or wanted.kind is TargetKind.CPU:
        return wanted
    of_kind = [target for target in known if target.kind is wanted.kind]
    for target in of_kind:
        if target.index == wanted.index and (
            not wanted.architecture or wanted.architecture == target.architecture
        ):
            return target
    ahead = [target for target in of_kind if target.index is None]
    if compiles_only and ahead:
        return ahead[0]
    here = sorted({target.device for target in known if target.device})
    raise RequestError(
        f"there is no device {wanted.device} for the providers of this request",
        hint=f"Devices here: {', '.join(here) or 'none'}; `gemmetry doctor` shows why. "
        "--device cuda-sm_80 compiles without a device; with --executor ray nodes have one.",
    )


def resolve_providers(
    spec: ProfileSpec,
    requests: Sequence[ProviderRequest],
    targets: Sequence[Target],
    catalogue: Catalogue,
) -> tuple[list[ProviderRequest], list[str]]:
    """The providers that take part, checked. If the spec names none: all available ones that serve
    one of the targets, or a user's kernel with one library to compare it with.

    Raises:
        RequestError: a provider does not work here, or none serves the targets.
    """
    chosen = list(requests)
    is_here = getattr(spec, "executor", "") != RAY  # The nodes show what works there.
    for request in chosen if is_here else ():
        reason = catalogue.unavailable(request.name, request.options)
        if reason is not None:
            raise RequestError(
                f"the provider {request.name} does not work here: {reason}",
                hint="Leave it out of --providers, or install what it needs.",
            )
    has_kernel = bool(spec.kernel)
    if spec.providers or (chosen and not has_kernel):
        return chosen, []
    names: Collection[str] = catalogue.provider_names()
    if has_kernel:  # It is compared with the best library.
        ranks = ((catalogue.traits(name).baseline_rank, name) for name in names)
        names = [name for _, name in sorted((rank, n) for rank, n in ranks if rank is not None)]
    for name in names:
        if catalogue.traits(name).is_default and _serves(name, targets, catalogue):
            options = provider_options(spec, name, catalogue)
            chosen.append(ProviderRequest(name=name, options=options))
            if has_kernel:
                break
    if not chosen:
        raise RequestError(
            f"no available provider supports {', '.join(t.device or t.name for t in targets)}",
            hint="`gemmetry list providers` lists what each needs.",
        )
    shown = ", ".join(request.name for request in chosen)
    return chosen, [f"providers: {shown} (--providers picks others)"]


def provider_options(spec: ProfileSpec, name: str, catalogue: Catalogue) -> dict[str, Any]:
    """Options that keys of the spec give to a provider."""
    values = {key: getattr(spec, key) for key in catalogue.traits(name).spec_keys}
    return {key: value for key, value in values.items() if value}


def _serves(name: str, targets: Sequence[Target], catalogue: Catalogue) -> bool:
    if name not in catalogue.provider_names() or catalogue.unavailable(name, {}) is not None:
        return False
    return any(
        target.kind is other.kind
        and (target.index is None or (other.index is not None and target.index == other.index))
        for other in catalogue.targets(name, {})
        for target in targets
    )


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and sentences for the user about what was chosen or left out."""

    plan: Plan
    notes: tuple[str, ...]


def make_plan(
    spec: ProfileSpec,
    catalogue: Catalogue,
    *,
    defaults: Defaults | None = None,
    base: Path | None = None,
    generated: Path | None = None,
) -> Planned:
    """The plan that `spec` requests.

    Paths in the spec are relative to the folder `base` (default: the working directory); `defaults`
    complete the spec (default: a first run on the device). `generated` is a folder that
    ``generate`` may have written: where the spec names no problem, the plan consists of the
    folder's dispatches.

    Raises:
        RequestError: a provider, device, shape or pattern does not exist or fit.
    """
    entries = _entries(spec, generated)
    requests = _requests(spec, base, defaults, entries, catalogue)
    targets, notes = resolve_targets(spec, requests, catalogue, defaults, entries)
    requests, more = resolve_providers(spec, requests, targets, catalogue)
    notes.extend(more)
    defaults = defaults or first_run(targets[0].kind)

    known = catalogue.provider_names()
    operations = [pattern_operation(pattern, known) for pattern in spec.dispatches]
    is_open = not spec.dispatches or any(operation is None for operation in operations)
    reused = Reused() if not entries else reuse(
        entries, [request.name for request in requests], targets, _selection(spec, None, targets),
        default_only=spec.default_config, where=str(generated),
    )  # fmt: skip
    notes.extend(reused.notes)
    there = {entry.operation for entry in entries if entry.provider in reused.providers}
    named = [one for text in spec.dispatches if (one := named_dispatch(text, known)) is not None]
    singles = [one for one in operations if one is not None and one not in there]
    if entries and not (reused.named or reused.operations or named or singles):
        raise nothing_left(spec.dispatches, entries, str(generated))
    expansion = expand(spec, defaults, base=base, singles=[*reused.operations, *singles],
                       use_default_shapes=is_open and not entries)  # fmt: skip
    notes.extend(expansion.notes)
    notes.extend(
        f"{pattern!r} is read as a regular expression, as re:{pattern} would be"
        for pattern in (*spec.dispatches, *spec.exclude)
        if is_regex_by_its_look(pattern)
    )
    applies = not (expansion.has_shapes or entries)
    selection = _selection(spec, defaults if applies else None, targets)
    settings = run_settings(spec)
    document = {
        "name": spec.name,
        "operations": dict(expansion.document),
        "providers": [_provider_document(request) for request in requests],
        "targets": [{"name": target.name, "device": target.device} for target in targets],
        "selection": selection.document(),
        "default_configurations_only": spec.default_config,
        "configurations": spec.configurations,
        "settings": _settings_document(settings),
        **({"shard": settings.shard} if settings.shard else {}),
        **({"generated": reused.document()} if entries else {}),
    }
    is_free = spec.configurations == "all" or spec.default_config or selection.include
    proposed = frozenset(request.name for request in requests) - selection.configurations.keys()
    selection = replace(selection, without=frozenset(product(reused.providers, reused.operations)))
    plan = Plan(
        name=spec.name,
        operations=expansion.operations,
        providers=tuple(requests),
        targets=tuple(targets),
        selection=None if selection.everything else selection,
        named=(*reused.named, *named),
        default_configurations_only=spec.default_config,
        proposed_only=frozenset() if is_free or not settings.measure else proposed,
        settings=settings,
        document=document,
    )
    return Planned(plan, tuple(dict.fromkeys(notes)))


def _entries(spec: ProfileSpec, generated: Path | None) -> tuple[Generated, ...]:
    """The entries that `spec` uses from the folder `generated`; empty: the spec names what is
    computed, or nothing was generated there."""
    if generated is None or names_a_problem(spec):
        return ()
    found = read_generated(generated)
    wanted = wanted_of(spec, found)
    if found and not wanted:
        raise nothing_left([*spec.operation_kind, *spec.dtypes], found, str(generated))
    return wanted


def _requests(
    spec: ProfileSpec,
    base: Path | None,
    defaults: Defaults | None,
    entries: Sequence[Generated],
    catalogue: Catalogue,
) -> list[ProviderRequest]:
    """The providers that the spec names, and the one that runs its kernels; empty: the caller
    chooses."""
    requests = []
    for provider in spec.providers:
        options = {**provider_options(spec, provider.name, catalogue), **provider.options}
        if values := [dict(item) for item in provider.configurations if isinstance(item, Mapping)]:
            options["configurations"] = values
        requests.append(ProviderRequest(name=provider.name, options=options))
    silent = [defaults.provider] if defaults is not None and defaults.provider else []
    if entries:
        silent = list(dict.fromkeys(entry.provider for entry in entries))
    requests = requests or [
        ProviderRequest(name=name, options=provider_options(spec, name, catalogue))
        for name in silent
    ]
    if spec.kernel:
        runner = next(n for n in catalogue.provider_names() if catalogue.traits(n).takes_kernels)
        given = next((request.options for request in requests if request.name == runner), {})
        kernels = [_kernel(text, base) for text in spec.kernel]
        options = {**given, "kernel": kernels if len(kernels) > 1 else kernels[0]}
        requests = [request for request in requests if request.name != runner]
        requests.append(ProviderRequest(name=runner, options=options))
    return requests


_WITH_MANIFEST = (".cu", ".cubin")
"""Suffixes of files whose manifest lists their kernels."""


def _kernel(text: str, base: Path | None) -> str:
    """``file.py:function`` with the file's full path, because workers run in other folders; a file
    with a manifest or a folder may stand alone, for all of its kernels."""
    hint = "Write --kernel file.py:function."
    alone = (base / text if base is not None else Path(text)).resolve()
    if alone.is_dir() or (alone.is_file() and alone.suffix in _WITH_MANIFEST):
        return str(alone)
    path, colon, function = text.rpartition(":")
    if not colon or not path or not function:
        raise RequestError(f"the kernel {text!r} does not name a function", hint=hint)
    file = (base / path if base is not None else Path(path)).resolve()
    if not file.is_file():
        raise RequestError(
            f"the kernel's file {file} does not exist",
            hint="Correct the path; a spec's paths begin at its folder, others at the current one.",
        )
    return f"{file}:{function}"


def _selection(
    spec: ProfileSpec, defaults: Defaults | None, targets: Sequence[Target]
) -> PatternSelection:
    """The patterns of `spec`, else those of `defaults` (None: none)."""
    patterns = spec.dispatches
    if spec.mma_tiler_mn:
        m, n = spec.mma_tiler_mn
        patterns = (*patterns, f"configuration=*tile_{m}x{n}x*")
    if defaults is not None and not (patterns or spec.default_config):
        # They name configurations of one provider on one kind of device; those of other devices
        # have other names.
        others = any(provider.name != defaults.provider for provider in spec.providers)
        if not others and all(target.kind is TargetKind.CUDA for target in targets):
            patterns = defaults.dispatches
    only = {
        provider.name: tuple(item for item in provider.configurations if isinstance(item, str))
        for provider in spec.providers
    }
    return PatternSelection(
        tuple(parse_pattern(text) for text in patterns),
        tuple(parse_pattern(text) for text in spec.exclude),
        {name: globs for name, globs in only.items() if globs},
    )


def run_settings(spec: ProfileSpec) -> RunSettings:
    """The settings of a run that the spec requests."""
    values = setting_values(dict(spec))
    values["warmup_iterations"] += spec.wait_steps
    values["launches_per_sample"] = values["launches_per_sample"] or spec.active_steps
    values["verify"] = values["verify"] and not spec.skip_ref_check
    values["jobs"] = max(values["jobs"], 0)
    if values["quick"] and "verification_level" not in spec.model_fields_set:
        values["verification_level"] = "quick"
    settings = RunSettings(**values)
    parse_shard(settings.shard)
    check_executor(settings.executor)
    return settings


def _settings_document(settings: RunSettings) -> dict[str, Any]:
    """The settings that decide which dispatches run, or their results. Plans that record traces
    add the schedule and the deadline of its stage themselves."""
    how = {
        key.setting: _plain(getattr(settings, key.setting))
        for key in SETTINGS
        if key.resume is not Resume.SAME_PLAN
    }
    del how["deadlines_s"][Stage.TRACE]
    how["min_samples"] = settings.min_samples or USUAL_SAMPLES
    return how


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _provider_document(request: ProviderRequest) -> dict[str, Any]:
    document: dict[str, Any] = {"name": request.name, "options": dict(request.options)}
    kernels = request.options.get("kernel") or []
    digests = {}
    for kernel in [kernels] if isinstance(kernels, str) else kernels:
        # An edited kernel is another plan, as its old results must not be taken for new ones.
        for file in _files_of(str(kernel)):
            digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return {**document, "kernel_sha256": digests} if digests else document


def _files_of(kernel: str) -> list[Path]:
    """The files of ``file:function``, or of a file or a folder that stands alone."""
    alone = Path(kernel)
    if alone.is_dir():
        return sorted(file for file in alone.iterdir() if file.suffix in _WITH_MANIFEST)
    file = alone if alone.is_file() else Path(kernel.rpartition(":")[0])
    return [file] if file.is_file() else []
