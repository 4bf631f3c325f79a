"""Resolves the providers and devices that a request names against those that exist here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmetry.domain.dispatch import ProviderRequest
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.settings import LOCAL
from gemmetry.domain.target import Target, TargetKind, check_device_names, parse_target
from gemmetry.specs.catalogue import Catalogue
from gemmetry.specs.generated import Generated
from gemmetry.specs.model import ProfileSpec
from gemmetry.specs.operations.defaults import Defaults

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
    names = list(spec.device) or _named_by_devices(spec)
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
            "no provider of this request works on this machine" + (f": {why}" if why else ""),
            hint="`gemmetry doctor` shows what is missing; --device cuda-sm_80 only compiles.",
        )
    kinds = {entry.kind for entry in entries}
    devices = [target for target in devices if target.kind in kinds] or devices
    best = min(devices, key=lambda target: (_BEST_FIRST.index(target.kind), target.index or 0))
    return [best], [f"device: {best.device} (--device picks another)"]


def _named_by_devices(spec: ProfileSpec) -> list[str]:
    """What ``--devices`` alone makes the targets: the first device, which the others join, or
    architectures, which have no device to distribute anything over."""
    serving = list(getattr(spec, "devices", ()))  # a key of a run, which has no static type
    executor = getattr(spec, "executor", LOCAL) or LOCAL
    check_device_names(serving, with_agents=executor != LOCAL)
    if any(name != "all" and parse_target(name).index is None for name in serving):
        return serving
    return [name for name in serving[:1] if name != "all"]


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
        is_cuda = wanted.kind is TargetKind.CUDA and wanted.index is not None
        if spec.cuda_arch and is_cuda:
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
        "--device cuda-sm_80 compiles without a device, and with --executor its agents have one.",
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
    is_here = getattr(spec, "executor", LOCAL) == LOCAL  # agents show what works where they are
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
    for name in _baselines(catalogue) if has_kernel else catalogue.provider_names():
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
    names = ", ".join(request.name for request in chosen)
    return chosen, [f"providers: {names} (--providers picks others)"]


def _baselines(catalogue: Catalogue) -> list[str]:
    """The providers with which a user's kernel is compared where no provider is named, the best
    first."""
    ranks = {name: catalogue.traits(name).baseline_rank for name in catalogue.provider_names()}
    ranked = [(rank, name) for name, rank in ranks.items() if rank is not None]
    return [name for _, name in sorted(ranked)]


def provider_options(spec: ProfileSpec, name: str, catalogue: Catalogue) -> dict[str, Any]:
    """Options that keys of the spec give to a provider."""
    values = {key: getattr(spec, key) for key in catalogue.traits(name).spec_keys}
    return {key: value for key, value in values.items() if value}


def _serves(name: str, targets: Sequence[Target], catalogue: Catalogue) -> bool:
    if name not in catalogue.provider_names() or catalogue.unavailable(name, {}) is not None:
        return False
    offered = catalogue.targets(name, {})
    return any(
        target.kind is other.kind
        and (target.index is None or (other.index is not None and target.index == other.index))
        for target in targets
        for other in offered
    )
