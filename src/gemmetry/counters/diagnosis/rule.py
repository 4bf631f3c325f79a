"""Rules: one file each in :mod:`gemmetry.counters.diagnosis.rules`, which is found by its being
there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gemmetry.counters.diagnosis import rules
from gemmetry.counters.diagnosis.model import Gate, Judgement

if TYPE_CHECKING:
    from gemmetry.counters.diagnosis.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one kind of limit is recognised. Its module has it as ``RULE``."""

    gate: Gate
    verdicts: Mapping[str, str]
    """Id of each finding that it makes -> its meaning, for the list of verdicts."""
    needs: tuple[str, ...]
    """The concepts of the catalogue that it looks at, as far as a chip has them."""
    threshold: str
    threshold_source: str
    judge: Callable[[Facts], Iterable[Judgement]]
    """What it says about a launch; nothing where it finds nothing."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """The rules in the order of their gates, and of their modules' names."""
    modules = pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
    names = sorted(module.name for module in modules if not module.ispkg)
    found = [importlib.import_module(name).RULE for name in names]
    return tuple(sorted(found, key=lambda rule: rule.gate))


def verdicts() -> dict[str, str]:
    """The id of every verdict -> its meaning, in the order of the gates."""
    return {name: text for rule in all_rules() for name, text in rule.verdicts.items()}
