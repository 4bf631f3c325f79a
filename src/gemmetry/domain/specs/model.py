"""The spec: everything that a request can specify, as one validated object.

Keys have the names of the command line's options with ``_`` for ``-``; the keys of the grid
tracing document are its settings in lower case.

Writes a spec as YAML text that reads back as the same spec, and the JSON schema of such texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from gemmetry.domain.options import ALIASES, KEYS, split_files
from gemmetry.domain.rows import DRAFT
from gemmetry.domain.specs import fields as f
from gemmetry.domain.specs.fields import run_fields


def _key(name: str, **limits: Any) -> Any:
    """A field with the default and the text of ``keys.py``."""
    return Field(KEYS[name].value, description=KEYS[name].text, **limits)


class ProviderSpec(BaseModel):
    """A provider with its options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="The provider's registered name.")
    configurations: tuple[str | dict[str, int | float | str | bool], ...] = Field(
        default=(),
        description="Only these configurations: globs on their names, or for `user` the keyword "
        "values of the function, one mapping each.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the provider's constructor."
    )

    @field_validator("name")
    @classmethod
    def _known_name(cls, value: str, info: ValidationInfo) -> str:
        known = (info.context or {}).get("providers")
        return value if known is None else str(f.check_known("provider", known)(value))


def _provider_list(value: Any) -> Any:
    """Names, a mapping of names to options, or a list of names and mappings -> mappings."""
    if isinstance(value, Mapping):
        return [{"name": name, "options": options or {}} for name, options in value.items()]
    items: list[Any] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        # YAML reads the name of the provider `null` as nothing.
        if item is None or isinstance(item, str):
            items.extend({"name": name} for name in (item or "null").replace(",", " ").split())
        elif isinstance(item, Mapping) and item.get("name", "") is None:
            items.append({**item, "name": "null"})
        else:
            items.append(item)
    return items


Providers = Annotated[tuple[ProviderSpec, ...], BeforeValidator(_provider_list)]
_Count = Annotated[int, Field(ge=1)]


_SAME_THING = (
    ("dispatch_repeat_count", "active_steps"),
    ("layouts", "transpose_a"),
    ("layouts", "transpose_b"),
    ("layouts", "enable_layout_search"),
    ("scaling", "sf_dtype"),
    ("scaling", "sf_vec_size"),
)


class _Problem(BaseModel):
    """Operations of a request, and what computes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: f.RunName = _key("name")
    # What is computed
    operation_kind: f.Kinds = _key("operation_kind")
    problem_m: f.Sizes = _key("problem_m")
    problem_n: f.Sizes = _key("problem_n")
    problem_k: f.Sizes = _key("problem_k")
    problem_b: f.Sizes = _key("problem_b")
    shapes: f.Shapes = _key("shapes")
    conv_shapes: f.Shapes = _key("conv_shapes")
    dtypes: f.Dtypes = _key("dtypes")
    result_dtype: f.Formats = _key("result_dtype")
    accumulator: f.Formats = _key("accumulator")
    layouts: f.Layouts = _key("layouts")
    result_layout: Literal["t", "n"] = _key("result_layout")
    epilogues: f.Epilogues = _key("epilogues")
    alpha: float = _key("alpha", allow_inf_nan=False)
    beta: float = _key("beta", allow_inf_nan=False)
    scaling: f.Scaling = _key("scaling")
    split_k_slices: f.Sizes = _key("split_k_slices")
    # Who computes it, and where
    providers: Providers = _key("providers")
    kernel: f.Kernels = _key("kernel")
    device: f.Devices = _key("device")
    cuda_arch: f.CudaArchitecture | None = _key("cuda_arch")
    iree_bin_dir: str | None = _key("iree_bin_dir")
    dispatches: f.Patterns = _key("dispatches")
    exclude: f.Patterns = _key("exclude")
    configurations: Literal["proposed", "all"] = _key("configurations")
    default_config: bool = _key("default_config")


if TYPE_CHECKING:  # The keys of a run have no static types: ``run_settings`` has typed values.
    _WithRunKeys = _Problem
else:
    _WithRunKeys = create_model("_WithRunKeys", __base__=_Problem, **run_fields())


class ProfileSpec(_WithRunKeys):
    """A request to profile: operations × providers × devices, a selection, and how to run.

    Raises:
        pydantic.ValidationError: holding every mistake; ``loader.py`` turns it into SpecError.
    """

    # Results
    counters: Literal["quick", "gemm", "full"] | None = _key("counters")
    experiment: str | None = _key("experiment")
    generated_dir: str | None = _key("generated_dir")
    output: tuple[str, ...] = _key("output")
    append: bool = _key("append")
    html: str | None = _key("html")
    format: Literal["table", "block", "csv", "md", "none"] = _key("format")
    columns: f.Names = _key("columns")
    baseline: str | None = _key("baseline")
    # Grid settings
    matrix_sizes: f.MatrixSizes = _key("matrix_sizes")
    precisions: f.Dtypes = _key("precisions")
    batch_sizes: f.Sizes = _key("batch_sizes")
    transpose_a: bool | None = _key("transpose_a")
    transpose_b: bool | None = _key("transpose_b")
    enable_size_search: bool | None = _key("enable_size_search")
    enable_precision_search: bool | None = _key("enable_precision_search")
    enable_layout_search: bool | None = _key("enable_layout_search")
    enable_batch_search: bool | None = _key("enable_batch_search")
    enable_rectangular: bool | None = _key("enable_rectangular")
    wait_steps: int = _key("wait_steps", ge=0)
    active_steps: _Count | None = _key("active_steps")
    chakra_all_steps: bool = _key("chakra_all_steps")
    # Options of CUTLASS' block-scaled example
    mnkl: f.FourSizes | None = _key("mnkl")
    mma_tiler_mn: f.TwoSizes | None = _key("mma_tiler_mn")
    sf_dtype: f.Format | None = _key("sf_dtype")
    sf_vec_size: _Count | None = _key("sf_vec_size")
    skip_ref_check: bool = _key("skip_ref_check")

    @field_validator("output", mode="before")
    @classmethod
    def _outputs(cls, value: Any) -> Any:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            return value
        return [
            file
            for item in items
            for file in (split_files(item) if isinstance(item, str) else [item])
        ]

    @field_validator("columns")
    @classmethod
    def _known_columns(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = (info.context or {}).get("columns")
        if known is not None:
            for name in value:
                f.check_known("column", known)(name)
        return value

    @model_validator(mode="after")
    def _given_once(self) -> ProfileSpec:
        given = self.model_fields_set
        for one, other in _SAME_THING:
            if {one, other} <= given and getattr(self, one) and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} mean the same; give only one of them")
        values = dict(self)
        if (values["min_samples"] or 0) > values["max_samples"]:
            raise ValueError(f"min_samples {values['min_samples']} is above max_samples")
        return self


_HEADER = """\
# A gemmetry spec; run it with: gemmetry profile --spec THIS_FILE
# `gemmetry help specs` explains the keys, and how an editor checks them (gemmetry schema -o FILE).
"""


def spec_text(spec: ProfileSpec) -> str:
    """The given values (without defaults), in the order of the model's fields."""
    given = spec.model_dump(mode="json", exclude_unset=True)
    # JSON values are YAML too, and quoted texts cannot be taken for numbers or null.
    lines = [f"{name}: {json.dumps(_plain(value), ensure_ascii=False)}\n"
             for name, value in given.items()]  # fmt: skip
    return _HEADER + ("".join(lines) or "{}\n")  # Without any key the file would not be a request.


def _plain(value: Any) -> Any:
    """The value without its empty parts, as a provider's options often are empty."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def spec_schema() -> dict[str, Any]:
    """JSON schema of spec files; aliases of keys are properties too."""
    schema = ProfileSpec.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        if name in properties:
            properties[alias] = {
                **properties[name], "description": f"Another name of {name}."
            }  # fmt: skip
    return {"$schema": DRAFT, **schema, "title": "gemmetry spec"}
