from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from pydantic import ValidationError

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.domain.specs.yaml_text import read_yaml
from gemmetry.sweeps.keys import (
    PRESETS,
    WorkloadConfig,
    config_keys,
    keys_without_effect,
    load_config,
)

FILE = Path(__file__).with_name("document.yaml")


def test_every_key_has_a_default_and_a_meaning():
    keys = list(config_keys())
    assert len({key.name for key in keys}) == len(keys) > 60
    for key in keys:
        assert key.text.endswith("."), key.name
        assert key.is_used or not key.is_own, key.name


def test_a_key_without_effect_is_listed_only_where_it_is_given():
    assert keys_without_effect(WorkloadConfig()) == []
    config = WorkloadConfig.model_validate({"streams": {"num_streams": 2}, "training": {}})
    assert keys_without_effect(config) == ["streams.num_streams"]


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("training", {"batch_size": 6, "gradient_accumulation": 4}, "not divisible"),
        ("model", {"model_dim": 100, "num_heads": 16}, "not divisible"),
        ("dataset", {"vocab_size": 7}, "model.vocab_size is 350000"),
        ("training", {"max_steps": 6}, "need 7 steps"),
        ("compile", {"enabled": True}, "cannot be compiled"),
        ("profiling", {"trace_filename": "../t.json"}, "without a folder"),
        ("model", {"dropout": 1.0}, "less than 1"),
        ("fsdp", {"backward_prefetch": "BACKWARD_POST"}, "BACKWARD_PRE"),
    ],
)
def test_values_that_cannot_be_trained_are_refused(section, values, words):
    with pytest.raises(ValidationError, match=words):
        WorkloadConfig.model_validate({section: values})


def write(folder: Path, text: str) -> str:
    path = folder / "workload.yaml"
    path.write_text(text)
    return str(path)


def test_the_documents_file_is_accepted_and_its_values_are_the_defaults():
    config, document = load_config(str(FILE)), load_config("document")
    known = {key.name: key for key in config_keys()}
    values = {
        f"{section}.{key}": tuple(value) if isinstance(value, list) else value
        for section, keys in read_yaml(FILE.read_text(), "it").value.items()
        for key, value in keys.items()
    }
    assert all(known[name].is_own == (name not in values) for name in known)
    used = [name for name in values if known[name].is_used and known[name].default is not None]
    found = {name: attrgetter(name)(document) for name in used}
    assert found == {name: values[name] for name in used}
    assert len(used) > 30
    ignored = keys_without_effect(config)
    assert "streams.stream_assignments" in ignored
    assert not any(key.startswith("model.") for key in ignored)


def test_short_runs_and_presets():
    assert all(load_config(preset).training.max_steps >= 1 for preset in PRESETS)
    short = {"training": {"max_steps": 1}, "profiling": {"enabled": False}}
    assert WorkloadConfig.model_validate(short).training.max_steps == 1


def test_a_file_comes_before_a_preset_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "tiny").write_text("training: {max_steps: 33}")
    monkeypatch.chdir(tmp_path)
    assert load_config("tiny").training.max_steps == 33


def test_overrides_replace_single_keys():
    config = load_config(
        "tiny", ["distributed.mode=fsdp", "optimizer.betas=[0.5, 0.6]", "training.grad_clip_norm="]
    )
    assert (config.distributed.mode, config.distributed.backend) == ("fsdp", "gloo")
    assert (config.optimizer.betas, config.training.grad_clip_norm) == ((0.5, 0.6), None)


def test_all_mistakes_are_reported_at_their_places(tmp_path):
    path = write(
        tmp_path,
        "training:\n  batch_sizes: 3\n  max_steps: x\nmodel: 5\nfsdp:\nlog: 3\n"
        "distributed: {mode: dpp}\n",
    )
    overrides = ["training.log_interval=0", "foo.bar=2", "optimizer.lr=[1]"]
    with pytest.raises(SpecError) as error:
        load_config(path, overrides)
    starts = (
        "--override foo.bar: unknown key 'foo'. Known: ", "--override optimizer.lr: [1] is not",
        "--override training.log_interval: 0 is below 1", f"{path}:2:3: unknown key 'batch_sizes'.",
        f"{path}:3:14: training.max_steps: 'x'", f"{path}:4:8: model: 5 is not a mapping",
        f"{path}:6:1: unknown key 'log'.", f"{path}:7:21: distributed.mode: unknown mode 'dpp'.",
    )  # fmt: skip
    for line, start in zip(error.value.mistakes, starts, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("training: {}\ntraining: {}\n", SpecError, "appears twice"),
        ("- 1\n- 2\n", SpecError, ":1:1: a configuration is a mapping of sections"),
        ("7\n", SpecError, ":1:1: a configuration is a mapping of sections"),
        ("# nothing\n", RequestError, "is empty"),
    ],
)
def test_files_without_sections_and_keys(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        load_config(write(tmp_path, text))


def test_a_file_that_cannot_be_read_leads_to_the_presets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, words in (("nowhere.yaml", "does not exist"), ("", "not a file")):
        with pytest.raises(RequestError, match=words) as error:
            load_config(source)
        assert "presets document and tiny" in error.value.hint


@pytest.mark.parametrize("text", ["max_steps", "max_steps=3", "a.b.c=1", ".=1", "training.=3"])
def test_an_override_without_section_and_value_is_refused(text):
    with pytest.raises(SpecError, match=r"not of the form section\.key=value"):
        load_config("tiny", [text])
