// SPDX-License-Identifier: MIT
/// \file
/// Selects the form of the softmax kernel for a block.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/band.inl.hpp"
#include "fovea/kernels/softmax/block.inl.hpp"
#endif

/// The band form for rows of N elements if they fit registers, otherwise for any width. The x86-64
/// baseline has only the second: it must be correct, not fast.
template <int N, class T>
FOVEA_INLINE bool softmax_band_of(const SoftmaxBlockArgs<T>& args, Index width) {
  constexpr int registers = N / kLanes<T>;
  if constexpr (registers <= kVecRegisters / 2 && !kIsCompact) {
    if (width == N) SoftmaxBand<registers, T>(args).run();
    return width == N;
  }
  return false;
}

/// The band form. \tparam kNamesBand whether common widths have specialised forms, which pays only
/// for operators with a named band; the bits are the same
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

/// Whether no option changes logits and weights, and the pattern has one pass.
template <class T>
bool is_plain(const SoftmaxBlockArgs<T>& args) {
  return args.map.is_identity() && args.sink == nullptr && !args.carry.is_used();
}

/// Computes forward softmax attention for one block of queries, and writes out and lse of the
/// block's rows.
///
/// A block whose rows see at most kBandKeys keys uses the band form, which sums in another order.
/// Only the pattern, the options and the storage decide that, so a row has the same bits in any
/// block, batch and sequence. The band form supports neither options nor 16-bit storage.
///
/// Each sub-block has two vectors of queries. Four measured slower for nearly every sparse pattern,
/// and no faster for dense attention, on AVX2 and AVX-512.
template <class T, Storage S, bool kNamesBand = false>
void softmax_block(const SoftmaxBlockArgs<T, S>& args) noexcept {
  if constexpr (S == Storage::native) {
    const bool is_band = args.block.most_keys <= kBandKeys && !args.in_tiles && is_plain(args);
    if (is_band) return softmax_band<kNamesBand>(args);
  }
  SoftmaxBlock<2, T, S>(args).run();
}
