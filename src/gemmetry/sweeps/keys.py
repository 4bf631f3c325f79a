"""The configuration of the training workload: every key with its default and its meaning, and how
it is read from a YAML file or a preset, and overrides.

Names, sections and defaults are those of the sweep analysis document's
``config/single_node/gemm_overlap_comm.yaml``. Keys of that file without an effect here are accepted
and listed as such; keys that it lacks are gemmetry's own and are marked. All mistakes are reported
at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.domain.opening import read_text_file
from gemmetry.domain.specs.loader import in_order, mistake_lines
from gemmetry.domain.specs.yaml_text import YamlDocument, read_yaml
from gemmetry.sweeps.options import CONFIGS, DOCUMENT

_UNUSED = "unused"
_OWN = "own"


def _key(default: Any, text: str, **limits: Any) -> Any:
    return Field(default, description=text, **limits)


def _own(default: Any, text: str, **limits: Any) -> Any:
    """A key that the document's file does not have."""
    return Field(default, description=text, json_schema_extra={_OWN: True}, **limits)


def _unused(default: Any, reason: str) -> Any:
    """A key of the document's file without an effect here, and why."""
    return Field(default, description=reason, json_schema_extra={_UNUSED: True})


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _may_be_empty(cls, value: Any) -> Any:
        return {} if value is None else value


class LoggingKeys(_Section):
    """What is printed."""

    level: Any = _unused("INFO", "Rank 0 always prints a few lines.")


class TrainingKeys(_Section):
    """The training loop."""

    epochs: Any = _unused(1, "`training.max_steps` determines the number of steps.")
    batch_size: int = _key(512, "Sequences per rank and optimiser step.", ge=1)
    gradient_accumulation: int = _key(
        4,
        "Number of equal micro-batches into which the batch is divided. Gradients are reduced "
        "in the last one only.",
        ge=1,
    )
    mixed_precision: Literal["bf16", "none"] = _key(
        "bf16",
        "Format of the GEMMs: bf16, or none for fp32. Parameters and optimiser state are fp32.",
    )
    max_steps: int = _key(10, "Number of optimiser steps.", ge=1)
    grad_clip_norm: float | None = _key(
        1.0,
        "Gradients are scaled so that the norm of all together is at most this; null: no clipping.",
        gt=0,
    )
    output_dir: Any = _unused("", "`--output` names the folder.")
    log_interval: int = _key(20, "Number of steps from one line with the loss to the next.", ge=1)
    additional_compute_streams: Any = _unused(4, "The workload uses torch's own streams.")
    lightweight_op_waves: Any = _unused(3, "The workload launches no additional operators.")
    deterministic: bool = _own(
        True,
        "true: only kernels that give the same result for the same seed, so that the losses of two "
        "runs are equal bit for bit; false: torch may choose faster kernels.",
    )

    @model_validator(mode="after")
    def _micro_batches(self) -> TrainingKeys:
        if self.batch_size % self.gradient_accumulation:
            raise ValueError(
                f"training.batch_size {self.batch_size} is not divisible by "
                f"training.gradient_accumulation {self.gradient_accumulation}"
            )
        return self

    @property
    def micro_batch(self) -> int:
        """Sequences per rank and micro-batch."""
        return self.batch_size // self.gradient_accumulation


class OptimizerKeys(_Section):
    """AdamW."""

    lr: float = _key(2e-4, "Learning rate after the warm-up.", ge=0)
    weight_decay: float = _key(0.01, "Decoupled weight decay.", ge=0)
    betas: tuple[float, float] = _key((0.9, 0.985), "Decay of the two moments.")
    eps: float = _own(1e-8, "Added to the denominator.", gt=0)


class SchedulerKeys(_Section):
    """The learning rate, which rises linearly and then falls linearly to zero."""

    warmup_steps: int = _key(200, "Number of steps during which it rises.", ge=0)
    total_steps: int = _key(2200, "Step at which it reaches zero.", ge=1)


class DatasetKeys(_Section):
    """The synthetic batch, which is drawn once and used in every step."""

    num_samples: Any = _unused(200_000, "One batch is drawn and used in every step.")
    sequence_length: int = _key(176, "Tokens per sequence.", ge=1)
    dense_dim: int | None = _key(None, "If given, the same as in `model`.", ge=1)
    sparse_features: int = _key(48, "Embeddings that are averaged for each token.", ge=1)
    vocab_size: int | None = _key(None, "If given, the same as in `model`.", ge=1)
    num_dense_features: int | None = _key(None, "If given, the same as in `model`.", ge=1)
    seed: int = _key(2025, "Seed of parameters, batch and dropout.", ge=0)


class ModelKeys(_Section):
    """Sizes of the transformer."""

    vocab_size: int = _key(350_000, "Rows of the embedding table.", ge=1)
    embedding_dim: int = _key(256, "Columns of the embedding table.", ge=1)
    num_dense_features: int = _key(32, "Dense features of each token.", ge=1)
    dense_dim: int = _key(256, "Values of a dense feature.", ge=1)
    model_dim: int = _key(1024, "Width of the residual stream.", ge=1)
    num_heads: int = _key(16, "Heads of attention.", ge=1)
    num_layers: int = _key(20, "Encoder layers.", ge=1)
    dropout: float = _key(0.1, "Share of the values that dropout sets to zero.", ge=0, lt=1)
    mlp_hidden_dim: int = _key(4608, "Width of the hidden layer of the MLPs.", ge=1)

    @model_validator(mode="after")
    def _equal_heads(self) -> ModelKeys:
        if self.model_dim % self.num_heads:
            raise ValueError(
                f"model.model_dim {self.model_dim} is not divisible by "
                f"model.num_heads {self.num_heads}"
            )
        return self


class FsdpKeys(_Section):
    """FSDP2 (``fully_shard``), for ``distributed.mode: fsdp``; one group for each layer."""

    sharding_strategy: Literal["full_shard", "shard_grad_op"] = _key(
        "full_shard",
        "full_shard frees the gathered parameters of a layer after its forward pass; "
        "shard_grad_op keeps them until its backward pass.",
    )
    backward_prefetch: Literal["BACKWARD_PRE"] = _key(
        "BACKWARD_PRE", "The parameters of the next layer are gathered before the gradients of a "
        "layer are computed; FSDP2 has no other mode."
    )  # fmt: skip
    use_orig_params: Any = _unused(True, "FSDP2 always keeps the original parameters.")
    limit_all_gathers: Any = _unused(True, "FSDP2 limits its memory by itself.")
    forward_prefetch: bool = _key(
        True, "The host issues the all-gathers of the next layers ahead of their forward pass."
    )
    sync_module_states: Any = _unused(True, "Every rank creates the same parameters.")
    param_init_device: Any = _unused("meta", "Parameters are created on the device.")
    prefetch_layers: int = _own(
        1,
        "How many layers ahead all-gathers are issued, in the forward and the backward pass.",
        ge=1,
    )
    reduce_dtype: Literal["fp32", "bf16"] = _own("fp32", "Format in which gradients are reduced.")


class DistributedKeys(_Section):
    """How the ranks work together."""

    backend: Literal["nccl", "gloo"] = _key(
        "nccl", "nccl: one GPU per rank, through NCCL or RCCL; gloo: on the CPU."
    )
    mode: Literal["ddp", "fsdp"] = _key("ddp", "DistributedDataParallel or FSDP2.")
    bucket_cap_mb: float = _key(
        32, "DDP: size in MiB of a bucket of gradients, which one all-reduce sums.", gt=0
    )
    gradient_as_bucket_view: bool = _key(
        True, "DDP: gradients are views into the buckets, not copies."
    )
    static_graph: bool = _key(True, "DDP: every step uses the same parameters.")
    find_unused_parameters: bool = _key(False, "DDP: search for parameters without a gradient.")


class CompileKeys(_Section):
    """torch.compile, which the workload does not use."""

    enabled: bool = _key(False, "Must be false.")
    backend: Any = _unused("inductor", "The workload is not compiled.")
    mode: Any = _unused("reduce-overhead", "The workload is not compiled.")
    fullgraph: Any = _unused(False, "The workload is not compiled.")
    dynamic: Any = _unused(False, "The workload is not compiled.")

    @field_validator("enabled")
    @classmethod
    def _is_off(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "the workload cannot be compiled. Use a training command of your own for that"
            )
        return value


class StreamsKeys(_Section):
    """Streams of the document's trainer."""

    num_streams: Any = _unused(6, "The workload uses torch's own streams.")
    high_priority: Any = _unused(None, "The workload uses torch's own streams.")
    stream_assignments: Any = _unused(None, "The workload uses torch's own streams.")


class DataloaderKeys(_Section):
    """The loader of the document's trainer."""

    num_workers: Any = _unused(8, "The batch is kept on the device.")
    pin_memory: Any = _unused(True, "The batch is kept on the device.")


class ProfilingKeys(_Section):
    """torch.profiler; a trace per rank, in ``torch_profiler/rank<R>/``."""

    enabled: bool = _key(True, "Whether anything is recorded.")
    wait: int = _key(1, "Steps before each recording that the profiler skips.", ge=0)
    warmup: int = _key(1, "Steps that are recorded and then discarded.", ge=0)
    active: int = _key(5, "Steps that a recording contains.", ge=1)
    repeat: int = _key(1, "Number of recordings; each writes a file.", ge=1)
    record_shapes: bool = _key(True, "Record the shapes of operators' arguments.")
    profile_memory: bool = _key(True, "Record allocations.")
    with_stack: bool = _key(True, "Record Python's call stacks.")
    with_flops: bool = _key(True, "Estimate the arithmetic of operators.")
    tensorboard: Any = _unused(False, "Traces are files in Chrome's format, compressed by gzip.")
    chrome_trace: Any = _unused(True, "Traces are files in Chrome's format, compressed by gzip.")
    trace_filename: str = _key(
        "customer_trace.json", "Name of the traces; `.json` is replaced by `.pt.trace.json.gz`."
    )

    @field_validator("trace_filename")
    @classmethod
    def _is_plain(cls, value: str) -> str:
        if not value.removesuffix(".json") or PurePath(value).name != value:
            raise ValueError("it must be the name of a file without a folder")
        return value

    @property
    def steps(self) -> int:
        """The number of steps that all recordings need together."""
        return self.repeat * (self.wait + self.warmup + self.active)


class TracelensKeys(_Section):
    """TraceLens within the document's trainer."""

    enabled: Any = _unused(False, "`gemmetry sweep analyze` reads the traces afterwards.")


class WorkloadConfig(_Section):
    """The whole configuration of the workload.

    Raises:
        pydantic.ValidationError: holding every mistake; ``load_config`` turns it into SpecError.
    """

    logging: LoggingKeys = LoggingKeys()
    training: TrainingKeys = TrainingKeys()
    optimizer: OptimizerKeys = OptimizerKeys()
    scheduler: SchedulerKeys = SchedulerKeys()
    dataset: DatasetKeys = DatasetKeys()
    model: ModelKeys = ModelKeys()
    fsdp: FsdpKeys = FsdpKeys()
    distributed: DistributedKeys = DistributedKeys()
    compile: CompileKeys = CompileKeys()
    streams: StreamsKeys = StreamsKeys()
    dataloader: DataloaderKeys = DataloaderKeys()
    profiling: ProfilingKeys = ProfilingKeys()
    tracelens: TracelensKeys = TracelensKeys()

    @model_validator(mode="after")
    def _sections_agree(self) -> WorkloadConfig:
        for name in ("vocab_size", "dense_dim", "num_dense_features"):
            given, own = getattr(self.dataset, name), getattr(self.model, name)
            if given not in (None, own):
                raise ValueError(
                    f"dataset.{name} is {given}, but model.{name} is {own}. Leave out the former"
                )
        if self.profiling.enabled and self.profiling.steps > self.training.max_steps:
            raise ValueError(
                f"the profiler would write no trace: profiling's wait, warmup, active and repeat "
                f"need {self.profiling.steps} steps, and training.max_steps is "
                f"{self.training.max_steps}"
            )
        return self


class ConfigKey(NamedTuple):
    """One key of the configuration."""

    name: str
    """With its section: ``training.batch_size``."""
    default: Any
    text: str
    is_used: bool
    is_own: bool
    """True: the document's file does not have it."""


def config_keys() -> Iterator[ConfigKey]:
    """Every key, in the order of the document's file."""
    for section, outer in WorkloadConfig.model_fields.items():
        model = outer.annotation
        assert isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            is_used, text = _UNUSED not in extra, field.description or ""
            yield ConfigKey(f"{section}.{name}", field.default, text, is_used, _OWN in extra)


def keys_without_effect(config: WorkloadConfig) -> list[str]:
    """Keys that were given and have no effect here, such as ``streams.num_streams``."""
    given = {
        f"{section}.{name}"
        for section in WorkloadConfig.model_fields
        for name in getattr(config, section).model_fields_set
    }
    return [key.name for key in config_keys() if not key.is_used and key.name in given]


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

PRESETS: Mapping[str, Mapping[str, Any]] = dict(zip(CONFIGS, ({}, TINY), strict=True))

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
    merged = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()
    }
    for text in overrides:
        path, value = _override(text)
        given[path] = text
        into = merged
        for part in path[:-1]:
            if not isinstance(into.get(part), Mapping):
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

    mistakes = list(document.mistakes) if document is not None else []
    try:
        config = WorkloadConfig.model_validate(merged)
    except ValidationError as error:
        mistakes = in_order([*mistakes, *mistake_lines(error, place, WorkloadConfig)])
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
