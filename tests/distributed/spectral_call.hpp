// SPDX-License-Identifier: MIT
/// \file
/// Distributed calls of the Fourier mixer and of the cross of hidden states: their tensors, and
/// both passes.
#pragma once

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"

namespace fovea_test {

/// Channels of one head.
inline SquareSequence channels(Index batch, Index rows, Index width,
                               std::vector<Index> lengths = {}) {
  return {{batch, 1, 1, rows, rows, width, width}, std::move(lengths)};
}

/// Tensors that all have the shape of the channels.
template <class T>
struct ChannelCall : ShardedTensors<T> {
  explicit ChannelCall(const SquareSequence& s)
      : ShardedTensors<T>(s), d_out(add("d_out", Role::read, 600)), out(add("out", Role::made)) {}

  ShardedTensor<T>& add(const char* name, Role role, std::uint64_t seed = 0) {
    const AttentionShape& s = this->sequence.shape;
    return ShardedTensors<T>::add(name, role, Held::rows, {s.batch, 1, s.queries, s.width},
                                  seed == 0 ? Fill() : gaussian(this->sequence.seed + seed));
  }

  ShardedTensor<T>&d_out, &out;
};

template <class T>
struct MixerCall : ChannelCall<T> {
  explicit MixerCall(const SquareSequence& s)
      : ChannelCall<T>(s), x(this->add("x", Role::read, 1)), d_x(this->add("d_x", Role::gradient)) {
    d_x.is_due = true;
  }

  ShardedTensor<T>&x, &d_x;
};

template <class T>
struct CrossCall : ChannelCall<T> {
  explicit CrossCall(const SquareSequence& s)
      : ChannelCall<T>(s),
        f1(this->add("f1", Role::read, 1)),
        f2(this->add("f2", Role::read, 2)),
        d_f1(this->add("d_f1", Role::gradient)),
        d_f2(this->add("d_f2", Role::gradient)) {}

  fovea::CrossInputs<T> inputs(Where where) const {
    return {f1.in(where), f2.in(where), this->sequence.lengths};
  }

  ShardedTensor<T>&f1, &f2, &d_f1, &d_f2;
};

/// The passes of both; over ranks for more = (rows, executor).
template <class T, class... More>
auto forward_in(Where where, const fovea::FourierMixer& op, const MixerCall<T>& call,
                More&&... more) {
  const View<const T> from(call.x.in(where));
  if constexpr (sizeof...(more) == 0) {
    op.forward(from, call.out.in(where));
  } else {
    return fovea::distributed::forward(op, from, call.out.in(where), more...);
  }
}
template <class T, class... More>
auto backward_in(Where where, const fovea::FourierMixer& op, const MixerCall<T>& call,
                 More&&... more) {
  const View<const T> from(call.d_out.in(where));
  if constexpr (sizeof...(more) == 0) {
    op.backward(from, call.d_x.in(where));
  } else {
    return fovea::distributed::backward(op, from, call.d_x.in(where), more...);
  }
}
template <class T, class... More>
auto forward_in(Where where, const fovea::HiddenStateCross& op, const CrossCall<T>& call,
                More&&... more) {
  if constexpr (sizeof...(more) == 0) {
    op.forward(call.inputs(where), call.out.in(where));
  } else {
    return fovea::distributed::forward(op, call.inputs(where), call.out.in(where), more...);
  }
}
template <class T, class... More>
auto backward_in(Where where, const fovea::HiddenStateCross& op, const CrossCall<T>& call,
                 More&&... more) {
  const View<const T> from(call.d_out.in(where));
  const fovea::CrossGrads<T> grads{call.d_f1.in(where), call.d_f2.in(where)};
  if constexpr (sizeof...(more) == 0) {
    op.backward(call.inputs(where), from, grads);
  } else {
    return fovea::distributed::backward(op, call.inputs(where), from, grads, more...);
  }
}

}  // namespace fovea_test
