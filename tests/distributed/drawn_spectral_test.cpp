// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// The Fourier mixer and the cross of hidden states over ranks, with random sizes, data and
/// layouts: the bits are those of one process.
#include <gtest/gtest.h>

#include "distributed/spectral_call.hpp"

namespace fovea_test::distributed_drawn_spectral {

/// Sizes of channels: rows of every kind, and widths with few columns or many.
DrawnSequence drawn_channels(Bytes& bytes) {
  DrawnSequence sequence(bytes, 1, 4000);
  AttentionShape& s = sequence.shape;
  if (bytes.once_in(6)) s.width = bytes(40, 300);
  if (s.queries > 1500) s.width = std::min<Index>(s.width, 70);
  return sequence;
}

template <class Call, class Op>
void try_spectral(const Op& op, Bytes& bytes) {
  constexpr bool kTakesLengths = std::same_as<Op, fovea::HiddenStateCross>;
  Call call(drawn_channels(bytes));
  const RowLayout layout = drawn_row_layout(bytes, call.sequence.shape.queries);
  const Passes passes{.has_backward = !bytes.once_in(3), .takes_lengths = kTakesLengths};
  compare_sharded(
      op.name(), call, passes, nullptr, layout, bytes,
      [&](Where where, auto&&... more) { return forward_in(where, op, call, more...); },
      [&](Where where, auto&&... more) { return backward_in(where, op, call, more...); });
}

TEST(DistributedDrawnSpectral, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const bool is_mixer = bytes.once_in(2);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      if (is_mixer) {
        try_spectral<MixerCall<T>>(fovea::FourierMixer(), bytes);
      } else {
        try_spectral<CrossCall<T>>(fovea::HiddenStateCross(), bytes);
      }
    });
  });
}

}  // namespace fovea_test::distributed_drawn_spectral
