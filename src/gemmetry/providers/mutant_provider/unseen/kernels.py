"""Planted unseen: slug -> class."""

from __future__ import annotations

from collections.abc import Mapping

from gemmetry.providers.mutant_provider.host.emulator import TiledGemm
from gemmetry.providers.mutant_provider.unseen import caches as caches
from gemmetry.providers.mutant_provider.unseen import callers as callers
from gemmetry.providers.mutant_provider.unseen import correct as correct
from gemmetry.providers.mutant_provider.unseen import scales as scales
from gemmetry.providers.mutant_provider.unseen import shapes as shapes

KERNELS: Mapping[str, type[TiledGemm]] = {
    "shared_exponents": scales.SharesExponents,
    "fixed_point": scales.FixedPoint,
    "epsilon_added": scales.AddsEpsilon,
    "scale_product_in_f16": scales.ScaleProductInF16,
    "scales_of_first_batch": scales.ScalesOfFirstBatch,
    "alpha_behind_bias": scales.AlphaBehindBias,
    "rounds_before_addend": scales.RoundsBeforeAddend,
    "alpha_folded": scales.FoldsAlpha,
    "beta_as_flag": scales.BetaAsFlag,
    "beta_divided_by_alpha": scales.DividesBetaByAlpha,
    "f16_subnormals_flushed": scales.FlushesF16,
    "remembers_by_b": caches.RemembersByB,
    "remembers_by_sums": caches.RemembersBySums,
    "remembers_by_samples": caches.RemembersBySamples,
    "remembers_by_edges": caches.RemembersByEdges,
    "reuses_when_close": caches.ReusesWhenClose,
    "reuses_recent": caches.ReusesRecent,
    "freezes_after_launches": caches.FreezesAfterLaunches,
    "packs_b_once": caches.PacksBOnce,
    "trusts_spot_check": caches.TrustsSpotCheck,
    "adds_to_finite": callers.AddsToFinite,
    "elides_stores": callers.ElidesStores,
    "two_buffers_in_turn": callers.TwoBuffersInTurn,
    "joins_at_next_launch": callers.JoinsAtNextLaunch,
    "alpha_of_thread": callers.AlphaOfThread,
    "scales_in_place": callers.ScalesInPlace,
    "rounds_address_down": callers.RoundsAddressDown,
    "loses_rarely": callers.LosesRarely,
    "overlap_added_twice": shapes.OverlapsAndAdds,
    "workspace_without_batch": shapes.WorkspaceWithoutBatch,
    "f16_saturated": shapes.SaturatesF16,
    "relu_by_mask": shapes.ReluByMask,
    "outer_product_without_bias": shapes.OuterProductWithoutBias,
    "gemv_drops_tail": shapes.GemvDropsTail,
    "sixteen_bit_k": shapes.SixteenBitK,
    "four_bit_rows": shapes.FourBitRows,
    "batch_stride_rounded": shapes.RoundsBatchStride,
    "bias_axis_guessed": shapes.GuessesBiasAxis,
    "table_of_full_tiles": shapes.TableOfFullTiles,
    "halves_columns": shapes.HalvesColumnsOfTiles,
    "unrolled_wrongly": shapes.UnrollsWrongly,
    "overlap_stored_twice": correct.OverlapsLastTile,
    "refuses_odd_k": correct.RefusesOddK,
    "alpha_zero_not_read": correct.SkipsProductOfAlphaZero,
    "packed_b_compared": correct.ComparesPackedB,
    "f64_sums": correct.SumsInF64,
    "tiles_shuffled": correct.ShufflesTiles,
    "threads_joined": correct.JoinsThreads,
    "sums_kept_in_output": correct.KeepsSumsInOutput,
    "tunes_itself": correct.TunesItself,
    "s8_nibbles": correct.SplitsNibbles,
    "gelu_by_erfc": correct.GeluByErfc,
    "f64_factors": correct.SumsInF64,
}
"""Slug of an unseen kernel -> its class."""
