"""A YAML file or a preset, and overrides -> the workload's configuration.

The keys are in ``keys.py``. All mistakes are reported at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.domain.opening import read_text_file
from gemmetry.domain.specs.loader import in_order, mistake_lines
from gemmetry.domain.specs.yaml_text import YamlDocument, read_yaml
from gemmetry.sweeps.training.keys import WorkloadConfig

DOCUMENT = "document"
"""The preset of the sweep analysis document: every key has its default."""

TINY: Mapping[str, Mapping[str, Any]] = {
    "training": {"batch_size": 4, "gradient_accumulation": 2, "max_steps": 4, "log_interval": 1},
    "scheduler": {"warmup_steps": 1, "total_steps": 100},
    "optimizer": {"lr": 0.002},
    "dataset": {"sequence_length": 16, "sparse_features": 4},
    "model": {
        "vocab_size": 512, "embedding_dim": 16, "num_dense_features": 2, "dense_dim": 16,
        "model_dim": 64, "num_heads": 4, "num_layers": 2, "mlp_hidden_dim": 256,
    },
    "distributed": {"backend": "gloo", "bucket_cap_mb": 0.125},
    "profiling": {
        "active": 2, "profile_memory": False, "with_stack": False, "with_flops": False,
    },
}  # fmt: skip
"""A workload for the CPU that trains within seconds, for tests and the demo."""

DOCUMENTS_FILE = "gemm_overlap_comm.yaml"
"""The file of the sweep analysis document, which is :data:`DOCUMENT` where there is none."""

PRESETS: Mapping[str, Mapping[str, Any]] = {DOCUMENT: {}, "tiny": TINY}

_FILE_HINT = f"Give the path of a YAML file, or one of the presets {' and '.join(PRESETS)}."
_HINT = "`gemmetry help training-workload` explains every key."


def load_config(source: str, overrides: Iterable[str] = ()) -> WorkloadConfig:
    """The configuration in the YAML file `source`, or of the preset of that name, with `overrides`
    of the form ``training.batch_size=8`` on top. A file comes before a preset of the same name,
    which the document's own file (``gemm_overlap_comm.yaml``) is where it is not there.

    Raises:
        RequestError: the file cannot be read, or is empty.
        SpecError: mistakes, one line each.
    """
    document, values = _values(source)
    given: dict[tuple[str, ...], str] = {}
    merged = {key: dict(value) if _is_mapping(value) else value for key, value in values.items()}
    for text in overrides:
        path, value = _override(text)
        given[path] = text
        into = merged
        for part in path[:-1]:
            if not _is_mapping(into.get(part)):
                into[part] = {}
            into = into[part]
        into[path[-1]] = value

    def place(location: tuple[str | int, ...], of_key: bool) -> str:
        for path in given:
            is_new_section = len(location) == 1 and path[0] == location[0] not in values
            if location[: len(path)] == path or is_new_section:
                return f"--override {'.'.join(path)}"
        if document is None:
            return f"preset {source}"
        return document.place(location, of_key=of_key)

    mistakes = document.mistakes if document is not None else []
    try:
        config = WorkloadConfig.model_validate(merged)
    except ValidationError as error:
        lines = [*mistakes, *mistake_lines(error, place, WorkloadConfig)]
        raise SpecError(in_order(lines), hint=_HINT) from None
    if mistakes:
        raise SpecError(mistakes, hint=_HINT)
    return config


def preset_of(source: str) -> str | None:
    """The preset that `source` means, by its name or as the document's file that is not there; None
    for a file."""
    if Path(source).exists():
        return None
    if Path(source).name == DOCUMENTS_FILE:
        return DOCUMENT
    return source if source in PRESETS else None


def _values(source: str) -> tuple[YamlDocument | None, Mapping[str, Any]]:
    """The document in the file `source`, None for a preset; and its values."""
    if (preset := preset_of(source)) is not None:
        return None, PRESETS[preset]
    text = read_text_file(Path(source), "the configuration", hint=_FILE_HINT)
    document = read_yaml(text, source)
    if document.is_empty:
        raise RequestError(f"the configuration {source} is empty", hint=_FILE_HINT)
    if not isinstance(document.value, dict):
        raise SpecError(
            [f"{source}:1:1: a configuration is a mapping of sections to keys"], hint=_HINT
        )
    return document, document.value


def _override(text: str) -> tuple[tuple[str, ...], Any]:
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or len(path) != 2 or not all(path):
        raise SpecError(
            [f"--override {text}: not of the form section.key=value"],
            hint="Write --override training.batch_size=8.",
        )
    return path, read_yaml(value, f"--override {key}").value if value.strip() else None


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)
