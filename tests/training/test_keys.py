from __future__ import annotations

import pytest
from pydantic import ValidationError

from gemmetry.sweeps.training.keys import WorkloadConfig, config_keys, keys_without_effect


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


def test_a_short_run_without_a_profiler_is_accepted():
    short = {"training": {"max_steps": 1}, "profiling": {"enabled": False}}
    assert WorkloadConfig.model_validate(short).training.max_steps == 1
