"""Planted kernels of ``caches.py``: what they keep or find, and what that must not decide."""

from __future__ import annotations

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.catalogue import Carrier, Mutant

_F32 = "matmul_96x64x64_f32t_f32t_f32t"
_TILE = (32, 32, 32)
"""Six tiles: the kernels differ in what they do around them."""

_KEPT = "follows_changes"


def _bug(number: int, slug: str, bug: str, *killed_by: str, operation: str = _F32) -> Mutant:
    return Mutant(number, slug, bug, Carrier.HOST, operation, killed_by=killed_by, tile=_TILE)


def _right(number: int, slug: str, why: str, *declared: Trait) -> Mutant:
    return Mutant(
        number, slug, why, Carrier.HOST, _F32, is_bug=False, declared=declared, tile=_TILE
    )


PLANTED: tuple[Mutant, ...] = (
    _bug(46, "computed_output_added", "adds to outputs that look like partial sums", "every_call"),
    _bug(49, "cache_by_a", "answers from a cache by the content of A", _KEPT),
    _bug(49, "cache_by_b", "answers from a cache by the content of B", _KEPT),
    _bug(49, "cache_by_operands", "does so by A and B, whatever is added", _KEPT,
         operation=_F32 + "_bias"),
    _bug(49, "cache_by_sums", "does so by the sums of A and B", _KEPT),
    _bug(49, "cache_by_line_sums", "does so by the sums of their rows", _KEPT),
    _bug(49, "cache_by_both_sums", "does so by the sums of their rows and columns", _KEPT),
    _bug(49, "cache_by_edges", "does so by what is at their edges", _KEPT),
    _bug(49, "cache_by_whole_lines", "does so by all but the last 256 bytes of each", _KEPT),
    _bug(49, "last_answer_by_both_sums",
         "gives its last answer again by the sums of rows and columns", _KEPT),
    _bug(49, "last_answer_by_a", "gives its last answer again where A is the same", _KEPT),
    _bug(49, "cache_by_magnitudes", "does so by their magnitudes", _KEPT),
    _bug(49, "cache_by_samples", "does so by one element of seven", _KEPT),
    _bug(49, "cache_by_first_rows", "does so by their first rows", _KEPT),
    _bug(49, "cache_by_all_addresses", "does so by the addresses of inputs and output", _KEPT),
    _bug(49, "cache_in_bursts", "does so where a call follows at once", _KEPT),
    _bug(49, "cache_after_many_calls",
         "answers with what came last, but for its first calls", "many_calls"),
    _bug(49, "cache_in_late_bursts",
         "does so where one call follows another at once", "many_calls", "after_timing"),
    _bug(49, "packs_once", "packs B once for each address", "in_place_change"),
    _bug(49, "packs_by_checksum", "packs B again where its sum has changed", _KEPT),
    _bug(51, "computed_output_skipped", "leaves an output that looks like a result", "every_call"),
    _bug(51, "computed_tiles_skipped", "leaves tiles that look like results", "every_call"),
    _bug(51, "own_result_skipped", "leaves an output that holds its own last result", _KEPT),
    _bug(66, "one_result_buffer", "returns all results in one buffer of its own", _KEPT),
    _bug(66, "two_result_buffers", "returns results in two buffers in turn", _KEPT),
    _bug(66, "four_result_buffers", "returns results in four buffers in turn", _KEPT),
    _right(27, "cache_by_all_content", "answers from a cache by all of A and B"),
    _right(27, "packs_by_content", "packs B again where a byte of it has changed"),
    _right(28, "workspace_kept", "keeps a workspace, and sets it to zero for each launch"),
    _right(28, "plan_kept", "keeps the order of tiles for a shape, compiles at the first launch"),
    _right(29, "new_result_buffer", "returns every result in memory of its own"),
    _right(29, "one_result_buffer_declared", "returns all results in one buffer, as declared",
           Trait.REUSES_RESULTS),
)  # fmt: skip
