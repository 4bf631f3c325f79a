from __future__ import annotations

from gemmetry.domain.settings import Form, plain
from gemmetry.domain.specs.keys import ALIASES, KEYS, PANELS, RETIRED, canonical_key
from gemmetry.domain.specs.model import ProfileSpec


def test_the_table_and_the_model_have_the_same_keys():
    assert set(KEYS) == set(ProfileSpec.model_fields)


def test_names_are_given_once():
    names = [*KEYS, *ALIASES, *(old.option.strip("-").replace("-", "_") for old in RETIRED)]
    assert len(set(names)) == len(names)
    shorts = [key.short for key in KEYS.values() if key.short]
    assert len(set(shorts)) == len(shorts)


def test_every_key_is_explained():
    for key in KEYS.values():
        assert key.panel in PANELS
        assert key.text.endswith((".", "..."))
        assert key.form is Form.FLAG or key.form is Form.SPEC_ONLY or key.metavar
        assert ProfileSpec.model_fields[key.name].description == key.text


def test_canonical_key():
    assert canonical_key("Batch-Size") == "dispatch_repeat_count"
    assert canonical_key("ENABLE_SIZE_SEARCH") == "enable_size_search"
    assert canonical_key("unknown") == "unknown"


def test_help_ends_with_the_default_of_the_model():
    fields = ProfileSpec.model_fields
    for key in KEYS.values():
        assert fields[key.name].default == key.value
        if key.default not in (None, {}, ""):
            assert key.help().endswith(f" Default: {plain(key.default)}.")
    assert KEYS["cold_cache"].help().endswith("Default: on.")
    assert KEYS["verification_providers"].help().endswith("Default: numpy.")
    assert KEYS["dtypes"].help().endswith("Default: f32, or bf16 on a GPU.")


def test_a_command_may_have_a_default_of_its_own():
    assert KEYS["providers"].help("iree").endswith("user. Default: iree.")
    assert KEYS["enable_rectangular"].help(False).endswith("Default: off.")
    assert KEYS["seed"].help(None) == KEYS["seed"].help()
    assert KEYS["problem_n"].help() == "Sizes of N."
