// SPDX-License-Identifier: MIT
/// \file
/// Distributed calls of the Fourier mixer and of the cross of hidden states: their tensors, both
/// passes, and the comparison with one process in layouts of every kind.
#pragma once

#include <gtest/gtest.h>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "support/executors.hpp"

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

/// The mixer. \tparam More the rows and the executor of passes over ranks
template <class T>
struct MixerCall : ChannelCall<T> {
  explicit MixerCall(const SquareSequence& s)
      : ChannelCall<T>(s), x(this->add("x", Role::read, 1)), d_x(this->add("d_x", Role::gradient)) {
    d_x.is_due = true;
  }

  template <class... More>
  auto forward(Where where, More&&... more) const {
    const View<const T> from(x.in(where));
    if constexpr (sizeof...(more) == 0) {
      op.forward(from, this->out.in(where));
    } else {
      return fovea::distributed::forward(op, from, this->out.in(where), more...);
    }
  }
  template <class... More>
  auto backward(Where where, More&&... more) const {
    const View<const T> from(this->d_out.in(where));
    if constexpr (sizeof...(more) == 0) {
      op.backward(from, d_x.in(where));
    } else {
      return fovea::distributed::backward(op, from, d_x.in(where), more...);
    }
  }

  fovea::FourierMixer op;
  ShardedTensor<T>&x, &d_x;
};

/// The cross, likewise.
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
  template <class... More>
  auto forward(Where where, More&&... more) const {
    if constexpr (sizeof...(more) == 0) {
      op.forward(inputs(where), this->out.in(where));
    } else {
      return fovea::distributed::forward(op, inputs(where), this->out.in(where), more...);
    }
  }
  template <class... More>
  auto backward(Where where, More&&... more) const {
    const View<const T> from(this->d_out.in(where));
    const fovea::CrossGrads<T> grads{d_f1.in(where), d_f2.in(where)};
    if constexpr (sizeof...(more) == 0) {
      op.backward(inputs(where), from, grads);
    } else {
      return fovea::distributed::backward(op, inputs(where), from, grads, more...);
    }
  }

  fovea::HiddenStateCross op;
  ShardedTensor<T>&f1, &f2, &d_f1, &d_f2;
};

/// Expects the bits of one process of both passes in layouts of every kind.
template <class Call>
void expect_bits_of_one_process(Call&& call, const AnyExecutor& executor = in_this_thread()) {
  call.forward(Where::one_process);
  call.backward(Where::one_process);
  for (const RowLayout& layout : layouts_of(call.sequence.shape.queries, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    SCOPED_TRACE(call.sequence.text() + ", " + layout.text());
    call.shard(rows);
    call.forward(Where::ranks, rows, executor);
    call.expect_bits(Role::made, rows);
    call.backward(Where::ranks, rows, executor);
    call.expect_bits(Role::gradient, rows);
  }
}

}  // namespace fovea_test
