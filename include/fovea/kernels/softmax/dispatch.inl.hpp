// SPDX-License-Identifier: MIT
/// \file
/// Which form of the softmax kernel a block takes: the one place that chooses.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/softmax/band.inl.hpp"
#include "fovea/kernels/softmax/block.inl.hpp"
#endif

/// The band form for rows of N elements if they stay in registers, and otherwise for rows of any
/// width. The baseline of x86-64 has the second alone: it is there to be right, not fast.
template <int N, class T>
FOVEA_INLINE bool softmax_band_of(const SoftmaxBlockArgs<T>& args, Index width) {
  constexpr int registers = N / kLanes<T>;
  if constexpr (registers <= kVecRegisters / 2 && !kIsCompact) {
    if (width == N) SoftmaxBand<registers, T>(args).run();
    return width == N;
  }
  return false;
}

/// The band form. \tparam kNamesBand whether the widths of most models have forms of their own,
/// which is worth their code only for operators that name a band; the bits are the same
template <bool kNamesBand, class T>
FOVEA_NOINLINE void softmax_band(const SoftmaxBlockArgs<T>& args) {
  if constexpr (kNamesBand) {
    const bool unit_columns =
        args.q.column == 1 && args.k.column == 1 && args.v.column == 1 && args.out.column == 1;
    const Index width = unit_columns && args.width == args.value_width ? args.width : 0;
    if (softmax_band_of<32>(args, width) || softmax_band_of<64>(args, width) ||
        softmax_band_of<128>(args, width)) {
      return;
    }
  }
  SoftmaxBand<0, T>(args).run();
}

/// Whether logits and weights are those of the products alone, and the pattern has one stage.
template <class T>
bool is_plain(const SoftmaxBlockArgs<T>& args) {
  return args.map.is_identity() && args.sink == nullptr && !args.carry.is_used();
}

/// Computes forward softmax attention for one block of queries, and writes out and lse of the
/// block's rows.
///
/// A block whose rows see at most kBandKeys keys takes the band form, which sums in another order.
/// The pattern, the options and the storage alone decide that, so a row keeps its bits in any
/// block, batch and sequence. The band form knows no options, and no numbers of 16 bits.
///
/// Each sub-block has two vectors of queries. In measurements four were slower for nearly every
/// sparse pattern, and no faster for dense attention, on AVX2 and AVX-512.
template <class T, Storage S, bool kNamesBand = false>
void softmax_block(const SoftmaxBlockArgs<T, S>& args) noexcept {
  if constexpr (S == Storage::native) {
    const bool is_band = args.block.most_keys <= kBandKeys && !args.in_tiles && is_plain(args);
    if (is_band) return softmax_band<kNamesBand>(args);
  }
  SoftmaxBlock<2, T, S>(args).run();
}
