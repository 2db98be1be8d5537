// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// The Fourier mixer and the cross of hidden states over ranks, with random sizes, data and
/// layouts: the bits are those of one process.
#include <gtest/gtest.h>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"

namespace fovea_test::distributed_drawn_spectral {

/// Sizes of channels: rows of every kind, and widths with few columns or many.
DrawnSequence drawn_channels(Bytes& bytes) {
  DrawnSequence sequence(bytes, 1, 4000);
  AttentionShape& s = sequence.shape;
  if (bytes.once_in(6)) s.width = bytes(40, 300);
  if (s.queries > 1500) s.width = std::min<Index>(s.width, 70);
  return sequence;
}

/// Tensors that all have the shape of the channels.
template <class T>
struct ChannelCall : ShardedTensors<T> {
  explicit ChannelCall(const DrawnSequence& s)
      : ShardedTensors<T>(s), d_out(add("d_out", Role::read, 600)), out(add("out", Role::made)) {}

  ShardedTensor<T>& add(const char* name, Role role, std::uint64_t seed = 0) {
    const AttentionShape& s = this->sequence.shape;
    return ShardedTensors<T>::add(name, role, Held::rows, {s.batch, 1, s.queries, s.width},
                                  seed == 0 ? Fill() : gaussian(this->sequence.seed + seed));
  }

  ShardedTensor<T>&d_out, &out;
};

template <class T>
void try_mixer(Bytes& bytes) {
  ChannelCall<T> call(drawn_channels(bytes));
  ShardedTensor<T>& x = call.add("x", Role::read, 1);
  ShardedTensor<T>& d_x = call.add("d_x", Role::gradient);
  d_x.is_due = true;
  const fovea::FourierMixer op;
  const RowLayout layout = drawn_row_layout(bytes, call.sequence.shape.queries);
  const auto forward = [&](Where where, auto&&... more) {
    if constexpr (sizeof...(more) == 0) {
      op.forward(View<const T>(x.in(where)), call.out.in(where));
    } else {
      return fovea::distributed::forward(op, View<const T>(x.in(where)), call.out.in(where),
                                         more...);
    }
  };
  const auto backward = [&](Where where, auto&&... more) {
    const View<const T> d_out(call.d_out.in(where));
    if constexpr (sizeof...(more) == 0) {
      op.backward(d_out, d_x.in(where));
    } else {
      return fovea::distributed::backward(op, d_out, d_x.in(where), more...);
    }
  };
  const Passes passes{.has_backward = !bytes.once_in(3), .takes_lengths = false};
  compare_sharded("FourierMixer", call, passes, nullptr, layout, layout, bytes, forward, backward);
}

template <class T>
void try_cross(Bytes& bytes) {
  ChannelCall<T> call(drawn_channels(bytes));
  ShardedTensor<T>& f1 = call.add("f1", Role::read, 1);
  ShardedTensor<T>& f2 = call.add("f2", Role::read, 2);
  ShardedTensor<T>& d_f1 = call.add("d_f1", Role::gradient);
  ShardedTensor<T>& d_f2 = call.add("d_f2", Role::gradient);
  const fovea::HiddenStateCross op;
  const RowLayout layout = drawn_row_layout(bytes, call.sequence.shape.queries);
  const auto inputs = [&](Where where) {
    return fovea::CrossInputs<T>{f1.in(where), f2.in(where), call.sequence.lengths};
  };
  const auto forward = [&](Where where, auto&&... more) {
    if constexpr (sizeof...(more) == 0) {
      op.forward(inputs(where), call.out.in(where));
    } else {
      return fovea::distributed::forward(op, inputs(where), call.out.in(where), more...);
    }
  };
  const auto backward = [&](Where where, auto&&... more) {
    const View<const T> d_out(call.d_out.in(where));
    const fovea::CrossGrads<T> grads{d_f1.in(where), d_f2.in(where)};
    if constexpr (sizeof...(more) == 0) {
      op.backward(inputs(where), d_out, grads);
    } else {
      return fovea::distributed::backward(op, inputs(where), d_out, grads, more...);
    }
  };
  compare_sharded("HiddenStateCross", call, {.has_backward = !bytes.once_in(3)}, nullptr, layout,
                  layout, bytes, forward, backward);
}

TEST(DistributedDrawnSpectral, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const bool is_mixer = bytes.once_in(2);
    with_drawn_scalar(bytes,
                      [&]<class T>(T) { is_mixer ? try_mixer<T>(bytes) : try_cross<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_spectral
