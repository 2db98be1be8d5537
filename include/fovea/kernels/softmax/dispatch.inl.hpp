// SPDX-License-Identifier: MIT
/// \file
/// Which form of the softmax kernel a block takes: the one place that chooses.

/// The band form; the widths of most models have their own, whose rows stay in registers.
template <class T>
FOVEA_NOINLINE void softmax_band(const SoftmaxBlockArgs<T>& args) {
  constexpr Index w = kLanes<T>;
  const bool unit_columns =
      args.q.column == 1 && args.k.column == 1 && args.v.column == 1 && args.out.column == 1;
  const Index registers = unit_columns && args.width == args.value_width ? args.width : 0;
  if (registers == 32 && 32 / w <= kVecRegisters / 2) {
    SoftmaxBand<32 / w, T>(args).run();
  } else if (registers == 64 && 64 / w <= kVecRegisters / 2) {
    SoftmaxBand<64 / w, T>(args).run();
  } else if (registers == 128 && 128 / w <= kVecRegisters / 2) {
    SoftmaxBand<128 / w, T>(args).run();
  } else {
    SoftmaxBand<0, T>(args).run();
  }
}

/// Whether logits and weights are those of the products alone, in one stage.
template <class T>
bool is_plain(const SoftmaxBlockArgs<T>& args) {
  return args.map.is_identity() && args.sink == nullptr && !args.carry.is_used();
}

/// Forward softmax attention of one block of queries. Writes out and lse of the block's rows.
///
/// A band of at most kBandKeys keys takes the band form, which sums in another order; that choice
/// is the pattern's and the options' alone, so that a row keeps its bits in any block, batch and
/// sequence. The band form knows no options.
///
/// Two vectors of queries in each sub-block: four were slower for nearly every sparse pattern
/// measured, and no faster for dense attention, on AVX2 and AVX-512.
template <class T, Storage S>
void softmax_block(const SoftmaxBlockArgs<T, S>& args) noexcept {
  if constexpr (S == Storage::native) {
    if (args.block.most_keys <= kBandKeys && is_plain(args)) return softmax_band(args);
  }
  SoftmaxBlock<2, T, S>(args).run();
}
