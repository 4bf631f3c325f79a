from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.core import TyperOption

from gemmetry.cli.main import load_command
from gemmetry.cli.options import OPTION_ALIASES, canonical_option, normalize
from gemmetry.domain.errors import RequestError

OPTIONS = [p for p in load_command("profile").params if isinstance(p, TyperOption)]


def message(line: str, has_arguments: bool = False) -> list[str]:
    return list(normalize(line.split(), OPTIONS, has_arguments))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--append", "--append"),
        ("--append=true", "--append"),
        ("--append=FALSE", "--no-append"),
        ("--no-append=true", "--no-append"),
        ("--no-append=false", "--append"),
        ("--append true --fresh", "--append --fresh"),
        ("--benchmark=false", "--no-profiling-enabled"),
        ("--no-benchmark", "--no-profiling-enabled"),
        ("--use-mma-sync true", "--use-mma-sync"),
        ("--problem_m=64", "--problem-m=64"),
        ("--problem-m 64 128 256:512:64", "--problem-m=64 --problem-m=128 --problem-m=256:512:64"),
        ("--problem-m=64 128 --seed 3", "--problem-m=64 --problem-m=128 --seed=3"),
        ("--problem-m -5", "--problem-m=-5"),
        ("--num-cpu -1", "--jobs=-1"),
        ("-j 3 -o a.csv", "-j 3 -o a.csv"),
        ("--dispatch=a,b", "--dispatches=a,b"),
        ("--Op-Kind all", "--operation-kind=all"),
        ("--iree-hal-target-backends=cuda", "--device=cuda"),
        ("--unknown_one=3", "--unknown_one=3"),
        ("-- --problem_m 3", "-- --problem_m 3"),
        ("--seed", "--seed"),
        ("--counters", "--counters=gemm"),
        ("--counters --fresh", "--counters=gemm --fresh"),
        ("--counters quick", "--counters=quick"),
        ("--counters=full", "--counters=full"),
    ],
)
def test_old_ways_of_writing(line, expected):
    assert message(line) == expected.split()


def test_words_after_a_list_remain_arguments():
    assert message("--columns a b", has_arguments=True) == ["--columns=a", "b"]
    assert message("--append true", has_arguments=True) == ["--append", "true"]


def test_an_option_of_another_command_with_the_name_of_a_key_needs_its_value():
    group = load_command("sweep").get_command(None, "rocprof-input")
    options = [p for p in group.params if isinstance(p, TyperOption)]
    assert list(normalize(["--counters"], options)) == ["--counters"]


def test_a_flag_is_true_or_false():
    with pytest.raises(RequestError, match="maybe"):
        message("--append=maybe")
    with pytest.raises(RequestError, match="cannot be turned off"):
        message("--fresh=false")


def test_every_alias_leads_to_an_option():
    known = {name for option in OPTIONS for name in option.opts}
    for alias, name in OPTION_ALIASES.items():
        assert name in known
        assert canonical_option(alias, dict.fromkeys(known)) == name


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(
    ["--append", "--append=true", "--problem-m", "--problem_n=3", "64", "a,b", "-j", "--", "-5"]
), max_size=8))  # fmt: skip
def test_no_written_word_is_lost(words):
    text = " ".join(normalize(words, OPTIONS))
    for word in words:
        assert word.split("=")[-1].removeprefix("--problem_") in text or word.endswith("=true")
