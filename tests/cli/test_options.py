from __future__ import annotations

import inspect

from gemmetry.cli.main import load_command
from gemmetry.cli.options import with_request
from gemmetry.cli.run import Source
from gemmetry.domain.settings import Form
from gemmetry.domain.specs.keys import KEYS, RETIRED


def test_every_key_is_an_option_of_the_commands_that_take_requests():
    for name in ("profile", "generate", "compile"):
        options = {p.name: p for p in load_command(name).params}
        for key in KEYS.values():
            if key.form is Form.SPEC_ONLY:
                assert key.name not in options
            else:
                assert key.option in options[key.name].opts
                assert options[key.name].is_flag == (key.form is Form.FLAG)
        for old in RETIRED:
            assert any(old.option in option.opts and option.hidden for option in options.values())


def test_a_command_gets_only_what_was_given(capsys):
    seen = {}

    @with_request
    def command(source: Source, own: int = 3) -> None:
        """Its help."""
        seen.update(source.given, own=own, spec=source.spec, settings=source.settings)

    values = dict.fromkeys(inspect.signature(command).parameters)
    values |= {
        "own": 5,
        "set": ["jobs=2"],
        "seed": "7",
        "dtypes": ["f32", "bf16"],
        "append": False,
        "build_dir": "x",
    }
    command(**values)
    assert seen == {
        "seed": "7", "dtypes": ["f32", "bf16"], "append": False, "own": 5, "spec": None,
        "settings": ["jobs=2"],
    }  # fmt: skip
    assert "--build-dir has no effect" in capsys.readouterr().err
    assert command.__doc__ == "Its help."
