"""Planted kernels of the host vehicle: slug -> class, and the executable around one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmetry.devices.host import HostBuffer, HostDevice
from gemmetry.domain.contracts import Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.mutant_provider.catalogue import Mutant
from gemmetry.providers.mutant_provider.host import arithmetic as arithmetic
from gemmetry.providers.mutant_provider.host import caches as caches
from gemmetry.providers.mutant_provider.host import callers as callers
from gemmetry.providers.mutant_provider.host import correct as correct
from gemmetry.providers.mutant_provider.host import edges as edges
from gemmetry.providers.mutant_provider.host import factors as factors
from gemmetry.providers.mutant_provider.host import memory as memory
from gemmetry.providers.mutant_provider.host import numbers as numbers
from gemmetry.providers.mutant_provider.host import pipeline as pipeline
from gemmetry.providers.mutant_provider.host import rare as rare
from gemmetry.providers.mutant_provider.host import scale as scale
from gemmetry.providers.mutant_provider.host import sharing as sharing
from gemmetry.providers.mutant_provider.host import sizes as sizes
from gemmetry.providers.mutant_provider.host import splits as splits
from gemmetry.providers.mutant_provider.host import stress as stress
from gemmetry.providers.mutant_provider.host.emulator import TiledGemm
from gemmetry.providers.mutant_provider.unseen import kernels as unseen_kernels

KERNELS: Mapping[str, type[TiledGemm]] = {
    "returns_zeros": memory.ReturnsZeros,
    "never_writes": memory.NeverWrites,
    "returns_freed_memory": memory.ReturnsFreedMemory,
    "m_tail_skipped": memory.SkipsPartialRows,
    "n_tail_skipped": memory.SkipsPartialColumns,
    "columns_past_192_dropped": memory.DropsColumnsPast192,
    "k_tail_dropped": memory.DropsTailOfK,
    "k_tail_reads_past_b": memory.ReadsPastB,
    "stores_past_rows": memory.StoresPastRows,
    "stores_before_output": memory.StoresBeforeOutput,
    "half_step_missed": pipeline.MissesHalfAStep,
    "step_counted_twice": pipeline.CountsAStepTwice,
    "barrier_missing": pipeline.MissingBarrier,
    "barrier_in_branch": pipeline.BarrierInBranch,
    "stages_share_memory": pipeline.StagesShareMemory,
    "launch_fails_silently": memory.LaunchFailsSilently,
    "warps_share_staging": pipeline.WarpsShareStaging,
    "wrong_phase": pipeline.WrongPhase,
    "too_few_bytes_expected": pipeline.ExpectsTooFewBytes,
    "hangs": memory.Hangs,
    "live_stage_overwritten": pipeline.OverwritesLiveStage,
    "proxy_fence_missing": pipeline.MissingProxyFence,
    "staging_reused_early": pipeline.ReusesStagingTooEarly,
    "exits_before_store": pipeline.ExitsBeforeStoring,
    "accumulator_read_early": pipeline.ReadsBeforeWaiting,
    "wrong_swizzle": pipeline.WrongSwizzle,
    "fragment_rows_swapped": pipeline.SwapsFragmentRows,
    "tail_rows_rotated": memory.StoresTailRowsRotated,
    "first_pointers_kept": callers.KeepsFirstPointers,
    "output_table_full": callers.FullTable,
    "multicast_to_both": pipeline.MulticastsToBoth,
    "odd_tile_skipped": memory.SkipsOddTile,
    "full_last_wave_skipped": memory.SkipsFullLastWave,
    "raster_no_bijection": memory.RastersByRows,
    "narrow_index": memory.NarrowIndex,
    "split_k_not_cleared": sharing.SumsNotCleared,
    "semaphore_not_reset": sharing.SemaphoreNotReset,
    "uneven_slice_dropped": sharing.DropsUnevenSlice,
    "peer_read_early": sharing.ReadsPeerTooEarly,
    "f16_sums": arithmetic.F16Sums,
    "bf16_sums": arithmetic.Bf16Sums,
    "bf16_partials": sharing.RoundsPartials,
    "fp8_sums_not_promoted": arithmetic.FastFp8Sums,
    "tf32_inputs": arithmetic.Tf32Inputs,
    "f16_inputs": arithmetic.F16Inputs,
    "fp8_inputs": arithmetic.Fp8Inputs,
    "result_truncated": arithmetic.TruncatesResult,
    "ties_away_from_zero": arithmetic.RoundsTiesAway,
    "result_scaled": arithmetic.ScalesResult,
    "row_scale_off_by_one": arithmetic.RepeatsRowScale,
    "scale_of_b_ignored": arithmetic.IgnoresScaleOfB,
    "scale_layout_transposed": arithmetic.ScaleLayoutTransposed,
    "scale_layout_unpadded": arithmetic.ScaleLayoutUnpadded,
    "scales_as_exponents": arithmetic.ScalesAsExponents,
    "pairs_swapped": arithmetic.SwapsPairs,
    "alpha_beta_swapped": arithmetic.SwapsAlphaBeta,
    "beta_zero_reads_output": memory.ReadsOutputForBetaZero,
    "adds_to_output": memory.AddsToOutput,
    "result_transposed": memory.StoresTransposed,
    "b_not_transposed": memory.ReadsBUntransposed,
    "addend_as_scratch": callers.UsesAddendAsScratch,
    "cache_by_pointer": callers.CachesByPointer,
    "work_left_to_thread": callers.LeavesWorkToThread,
    "thread_writes_later": callers.ThreadWritesLater,
    "lazy_result": callers.ReturnsLazyResult,
    "every_tenth_skipped": callers.SkipsEveryTenth,
    "known_outputs_skipped": callers.SkipsKnownOutputs,
    "back_to_back_skipped": callers.SkipsBackToBack,
    "sums_not_products": callers.SumsInsteadOfProducts,
    "fixed_seed_remembered": callers.RemembersFixedSeed,
    "nan_swallowed": arithmetic.SwallowsNan,
    "neighbour_row_leaks": memory.MasksByMultiplying,
    "workspace_taken_for_zero": stress.TakesWorkspaceForZero,
    "fixed_wait_for_partner": stress.WaitsFixedTime,
    "s8_sums_in_f32": numbers.F32Sums,
    "pairs_saturate": numbers.SaturatesPairs,
    "offset_pairs_saturate": numbers.SaturatesOffsetPairs,
    "negated_in_s8": numbers.NegatesInS8,
    "minus_128_clamped": numbers.ClampsTo127,
    "e4m3_top_reserved": numbers.ReservesTopOfE4m3,
    "scaled_e4m3_top_reserved": numbers.ReservesTopOfE4m3,
    "biased_e4m3_top_reserved": numbers.ReservesTopOfE4m3,
    "e5m2_top_counted": numbers.CountsTopOfE5m2,
    "zero_rows_skipped": edges.SkipsZeroRows,
    "zero_by_zero": edges.DividesZeroByZero,
    "minimum_with_output": edges.MinimumWithOutput,
    "maximum_with_output": edges.MaximumWithOutput,
    "maximum_behind_relu": edges.MaximumWithOutput,
    "vectors_past_k": edges.ReadsVectorsPastK,
    "s8_vectors_past_k": edges.ReadsVectorsPastK,
    "tanh_gelu": numbers.TanhGelu,
    "tanh_gelu_to_bf16": numbers.TanhGelu,
    "alpha_twice": factors.AlphaTwice,
    "alpha_twice_in_f64": factors.AlphaTwice,
    "alpha_for_addend_too": factors.AlphaForAddendToo,
    "alpha_as_integer": factors.AlphaAsInteger,
    "alpha_without_sign": factors.AlphaWithoutSign,
    "alpha_in_f16": factors.NarrowFactors,
    "alpha_in_bf16": factors.NarrowFactorsBf16,
    "alpha_in_bf16_to_bf16": factors.NarrowFactorsBf16,
    "beta_in_bf16": factors.NarrowBeta,
    "beta_ignored": factors.BetaIgnored,
    "beta_taken_for_one": factors.BetaTakenForOne,
    "beta_for_product": factors.BetaForProduct,
    "beta_for_residual": factors.BetaForResidual,
    "alpha_behind_relu": factors.AlphaBehindRelu,
    "alpha_behind_bias": factors.AlphaBehindBias,
    "alpha_folded_in_bf16": factors.AlphaFoldedInInputFormat,
    "block_exponents": scale.SharesExponents,
    "block_exponents_of_b": scale.SharesExponentsOfB,
    "fixed_point_rows": scale.FixedPointRows,
    "rows_normalised_in_range": edges.NormalisesRows,
    "fixed_point": scale.FixedPoint,
    "ends_at_epsilon": scale.EndsAtEpsilon,
    "epsilon_in_divisor": scale.EpsilonInDivisor,
    "small_bf16_flushed": scale.FlushesSmallBf16,
    "clamps_at_2_30": scale.ClampsInputs,
    "squares_on_the_way": scale.SquaresOnTheWay,
    "f16_inputs_flushed": scale.FlushesInputs,
    "f16_results_flushed": scale.FlushesResults,
    "f16_saturates": scale.SaturatesF16,
    "overflows_upwards": scale.OverflowsUpwards,
    "infinity_without_sign": scale.InfinityWithoutSign,
    "nan_spoils_neighbours": scale.NanSpoilsNeighbours,
    "nan_cleaned_in_place": scale.CleansInputs,
    "infinity_cleaned_in_place": scale.CleansInfinity,
    "workspace_times_zero": scale.ClearsByMultiplying,
    "nan_in_padding": memory.MasksByMultiplying,
    "one_column_without_b": sizes.SingleColumnByRows,
    "eight_columns_in_pairs": sizes.EightColumnsInPairs,
    "one_product_without_b": sizes.SingleProductWithoutB,
    "columns_past_512_dropped": sizes.ThreadForEachColumn,
    "products_past_1024_dropped": sizes.StepsInATable,
    "index_error_on_tail": sizes.IndexErrorOnTail,
    "recursion_on_tail": sizes.RecursionOnTail,
    "key_error_on_tail": sizes.KeyErrorOnTail,
    "tails_refused": sizes.RefusesTails,
    "columns_balanced": scale.BalancesColumns,
    "rows_scaled_gently": scale.ScalesRowsGently,
    "fixed_point_by_norm": scale.FixedPointRows,
    "nan_by_flag": scale.NanByFlag,
    "split_k": splits.SplitK,
    "split_k_atomics": splits.SplitKAtomics,
    "stream_k": splits.StreamK,
    "k_reversed": correct.ReversedK,
    "kahan_sum": correct.KahanSum,
    "pairwise_sum": correct.PairwiseSum,
    "truncating_sums": correct.TruncatingSums,
    "tf32_tensor_core": correct.Tf32TensorCore,
    "tf32_by_policy": correct.Tf32ByPolicy,
    "bf16x9": correct.ThreeBf16,
    "fp8_promoted": correct.PromotedFp8,
    "stochastic_rounding": correct.StochasticRounding,
    "negative_zeros": correct.NegativeZeros,
    "relu_by_maxnum": correct.ReluByMaxNum,
    "true_overflow": TiledGemm,
    "saturating_cast": correct.Saturating,
    "swap_ab": correct.SwapsOperands,
    "padded_view_returned": correct.ReturnsView,
    "whole_tiles_to_own_buffer": correct.StoresWholeTiles,
    "strassen": correct.Strassen,
    "one_processor": correct.OneProcessor,
    "subnormals_flushed": correct.FlushesSubnormals,
    "fma_contraction": correct.FusedMultiplyAdd,
    "one_by_one": correct.OneByOne,
    "rounds_to_overflow": TiledGemm,
    "s8_pairs": numbers.PairedS8,
    "s8_offset": numbers.OffsetS8,
    "fp8_by_table": numbers.DecodesFp8,
    "gelu_by_formula": numbers.RationalGelu,
    "rows_normalised": edges.NormalisesRows,
    "alpha_in_a": factors.FoldsAlphaIntoA,
    "alpha_in_b": factors.FoldsAlphaIntoB,
    "alpha_in_b_of_f64": factors.FoldsAlphaIntoB,
    "alpha_per_step": factors.AlphaPerStep,
    "begins_with_addend": factors.BeginsWithAddend,
    "begins_with_addend_in_bf16": factors.BeginsWithAddend,
    "begins_with_addend_in_f16": factors.BeginsWithAddend,
    "begins_with_quotient": factors.BeginsWithQuotient,
    "alpha_in_a_before_gelu": factors.FoldsAlphaIntoA,
    "scales_in_operands": factors.FoldsScalesIntoOperands,
    **caches.KERNELS,
    **rare.KERNELS,
}
"""Slug of a planted kernel -> its class."""


class HostExecutable:
    """A planted kernel on prepared host buffers."""

    def __init__(self, kernel: TiledGemm, facts: BuildFacts) -> None:
        self.device: Device = HostDevice()
        self.facts = facts
        self.writes_output = kernel.writes_output
        self.kernel = kernel

    def run(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        """One launch; the result is what the planted kernel returns."""
        return self.kernel.launch(inputs, output)

    def close(self) -> None:
        """Nothing is held that numpy does not free."""


def build(item: Mutant, dispatch: Dispatch) -> Executable:
    """The planted kernel `item` for the dispatch's operation, ready to launch."""
    kernels = unseen_kernels.KERNELS if item.is_unseen else KERNELS
    kernel = kernels[item.slug](dispatch.operation, item.tile)
    kind = "a planted bug" if item.is_bug else "correct but tricky"
    return HostExecutable(
        kernel, BuildFacts(declared=item.declared, notes=(f"{kind}: {item.bug}",))
    )
