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

template <class Call>
void try_spectral(const char* name, Bytes& bytes) {
  Call call(drawn_channels(bytes));
  const RowLayout layout = drawn_row_layout(bytes, call.sequence.shape.queries);
  const Passes passes{.has_backward = !bytes.once_in(3), .takes_lengths = requires {call.f1;
}
};  // namespace fovea_test::distributed_drawn_spectral
compare_sharded(
    name, call, passes, nullptr, layout, layout, bytes,
    [&](Where where, auto&&... more) { return call.forward(where, more...); },
    [&](Where where, auto&&... more) { return call.backward(where, more...); });
}

TEST(DistributedDrawnSpectral, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const bool is_mixer = bytes.once_in(2);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      if (is_mixer) return try_spectral<MixerCall<T>>("FourierMixer", bytes);
      try_spectral<CrossCall<T>>("HiddenStateCross", bytes);
    });
  });
}

}  // namespace fovea_test::distributed_drawn_spectral
