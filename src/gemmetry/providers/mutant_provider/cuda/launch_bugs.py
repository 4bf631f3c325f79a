"""CUDA mutants with a bug in how the kernel is launched (``torch_callers.py``)."""

from __future__ import annotations

from functools import partial

from gemmetry.providers.mutant_provider.cuda.recipe import AT_LAUNCH, LONG, bug

_bug = partial(bug, recipe=AT_LAUNCH)

LAUNCH_BUGS = (
    _bug(
        49,
        "cache_by_version",
        "returns a cached result if the addresses and versions of the inputs are the same",
        "follows_changes",
    ),
    _bug(
        49,
        "cache_by_both_sums",
        "returns a cached result if the sums of all rows and columns are the same",
        "follows_changes",
    ),
    _bug(
        49, "last_answer_by_a", "returns its last result again if A is the same", "follows_changes"
    ),
    _bug(
        49, "packs_by_version", "packs B again only if its version has changed", "follows_changes"
    ),
    _bug(
        49,
        "copies_in_graphs",
        "copies its last result when it is captured into a graph",
        "after_timing",
    ),
    _bug(
        50,
        "default_stream",
        "launches on the default stream instead of the current one",
        "unordered_work",
    ),
    _bug(
        50,
        "fork_not_joined",
        "launches on a second stream that the current one does not wait for",
        "unordered_work",
        "follows_changes",
        operation=LONG,
    ),
    _bug(
        50,
        "fork_not_joined_short",
        "launches on a second stream that the current one does not wait for (short launch)",
        "unordered_work",
        "follows_changes",
    ),
    _bug(
        75,
        "wrong_once_in_300",
        "negates one element of the result in every 300th launch",
        "rare_launches",
    ),
    _bug(
        66,
        "two_result_buffers",
        "returns results in two buffers of its own in turn",
        "follows_changes",
    ),
    _bug(
        66,
        "three_result_buffers",
        "returns results in three buffers of its own in turn",
        "follows_changes",
    ),
)
