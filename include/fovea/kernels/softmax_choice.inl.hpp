// SPDX-License-Identifier: MIT
/// \file
/// Which form of the softmax kernel a block takes: the one place that chooses.

/// Keys that a row of the block sees on average.
template <class T>
Index mean_keys(const SoftmaxBlockArgs<T>& args) {
  Index pairs = 0;
  for (Index r = 0; r < args.block.run_count; ++r) {
    const KeyRun& run = args.block.runs[r];
    for (Index i = 0; i < args.block.count; ++i) {
      pairs += run.lower == nullptr ? run.count : run.upper[i] - run.lower[i];
    }
  }
  return pairs / larger(1, args.block.count);
}

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

/// Whether logits and weights are those of the products alone, in tensors of T.
template <class T>
bool is_plain(const SoftmaxBlockArgs<T>& args) {
  return args.map.is_identity() && args.sink == nullptr && args.q.storage == Storage::native;
}

/// Forward softmax attention of one block of queries. Writes out and lse of the block's rows.
///
/// A band of at most kBandKeys keys takes the band form, which sums in another order; that choice
/// is the pattern's and the options' alone, so that a row keeps its bits in any block, batch and
/// sequence. The band form knows no options. The width of the tile form's sub-blocks changes no
/// bit: wide ones reuse each scalar of K and V for four vectors, narrow ones compute fewer
/// invisible pairs along the edges of a window.
template <class T>
void softmax_block(const SoftmaxBlockArgs<T>& args) noexcept {
  if (args.block.most_keys <= kBandKeys && is_plain(args)) {
    softmax_band(args);
    return;
  }
  const Index keys = mean_keys(args);
  const Index rows = args.block.count;
  if (rows <= kLanes<T> || keys < 4 * kLanes<T>) {
    SoftmaxBlock<1, T>(args).run();
  } else if (rows <= 2 * kLanes<T> || keys < 32 * kLanes<T>) {
    SoftmaxBlock<2, T>(args).run();
  } else {
    SoftmaxBlock<4, T>(args).run();
  }
}
