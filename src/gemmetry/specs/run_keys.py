"""The keys of a spec that set a field of a run each, as fields of a model. Their names, types,
limits, defaults and texts follow from the declarations in ``domain/settings.py``."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field

from gemmetry.domain.settings import Key, RunSettings
from gemmetry.specs import fields as f
from gemmetry.specs.keys import SETTINGS

_NOTATIONS = {"TIME": f.Duration, "BYTES": f.Memory}


def run_fields() -> dict[str, Any]:
    """Key -> its type and its field, as ``pydantic.create_model`` takes them."""
    hints = get_type_hints(RunSettings)
    return {
        key.name: (_type_of(key, hints[key.setting]), Field(key.value, description=key.text))
        for key in SETTINGS
    }


def _type_of(key: Key, hint: Any) -> Any:
    """What a spec may hold for a setting whose values have the type `hint`."""
    parts = [part for part in get_args(hint) if part is not NoneType]
    is_optional = key.is_optional or NoneType in get_args(hint)
    match get_origin(hint):
        case origin if origin is Mapping:
            timed = dict.__class_getitem__((parts[0], f.Duration))
            named = {"TIME": timed, "NAME=VALUE": f.Options}
            return named.get(key.metavar, f.Tags)
        case origin if origin is tuple:
            return f.known_names(key.name.removesuffix("s"), key.names)
    kind: Any = _NOTATIONS.get(key.metavar, parts[0] if is_optional and parts else hint)
    if key.choices:
        kind = Literal[key.choices]
    elif key.names:
        kind = Annotated[kind, AfterValidator(f.check_known(key.name, key.names))]
    if key.limits:
        kind = Annotated[kind, Field(**key.limits)]
    return kind | None if is_optional else kind


def setting_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Field of :class:`RunSettings` -> its value by the keys of `spec`: of a mapping the default
    with the given parts, of nothing the default."""
    found = {}
    for key in SETTINGS:
        value, default = spec[key.name], getattr(RunSettings(), key.setting)
        if isinstance(value, Mapping):
            value = {**default, **value}
        found[key.setting] = default if value is None else value
    return found
