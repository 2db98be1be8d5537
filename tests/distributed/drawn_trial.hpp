// SPDX-License-Identifier: MIT
/// \file
/// Compares drawn calls over ranks with one process, and calls that are wrong on one rank with one
/// another.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "attention/poisons.hpp"
#include "distributed/drawn_tensors.hpp"
#include "distributed/out_grads.hpp"
#include "fovea/distributed/comm_stats.hpp"
#include "fovea/simd/softmax_constants.hpp"
#include "support/exactness.hpp"

namespace fovea_test {

/// How a call's tensors are prepared.
struct Passes {
  bool has_backward = true;
  bool keeps = true;      // whether the forward pass keeps what the backward pass may make again
  bool is_alike = false;  // whether all ranks want the same tensors
  bool takes_lengths = true;
  /// Whether invalid calls are tried, too. A longer tensor may be valid if all ranks agree.
  bool refuses = all_ranks().size() > 1;
};

/// Makes a call with one rank's error: a longer tensor, or different lengths. All ranks report the
/// same error, and nothing is written.
/// \param is_meant says whether a tensor goes into the call   \param wrong makes it
template <class T, class IsMeant, class Wrong>
void refuse_together(ShardedTensors<T>& call, const Passes& passes, Bytes& bytes,
                     const IsMeant& is_meant, const Wrong& wrong) {
  const bool is_odd = all_ranks().rank() == bytes(0, all_ranks().size() - 1);
  std::vector<AnyShardedTensor*> all;
  for (const auto& x : call.tensors) {
    if (is_meant(*x)) all.push_back(x.get());
  }
  if (passes.takes_lengths && bytes.once_in(5)) {
    std::vector<Index> lengths = call.sequence.lengths;
    if (is_odd) call.sequence.lengths.push_back(call.sequence.shape.keys + 1);
    EXPECT_NE(said_together(wrong), "accepted") << "with other lengths";
    call.sequence.lengths = lengths;
    return;
  }
  AnyShardedTensor& x = *drawn_of(bytes, all);
  const Index dimension = x.held == Held::numbers ? 3 : bytes(0, 3);
  if (is_odd) x.lengthen(as_size(dimension));
  EXPECT_NE(said_together(wrong), "accepted")
      << x.name << " is longer in dimension " << dimension << " on one rank";
  if (is_odd) x.take_back();
}

/// Which of them this rank requests, and their memory.
template <class T>
void sharded_tensors(ShardedTensors<T>& call, const Passes& passes, const AnyShardedTensor* lse,
                     const CallRows& rows, Bytes& bytes, Bytes& own) {
  for (const auto& x : call.tensors) {
    if (x->role == Role::none) continue;  // it may have other rows
    x->sharded(rows.of(*x), own);
    Bytes& wishes = passes.is_alike || x->is_alike ? bytes : own;
    const bool is_free =
        (x->role == Role::gradient && !x->is_due) || (x.get() == lse && !passes.has_backward);
    if (is_free) x->is_wanted = !wishes.once_in(4);
    if (x->role != Role::kept) continue;
    x->is_wanted = passes.keeps || (wishes.once_in(2) && !passes.is_alike);
  }
}

/// Makes NaN of what a call has left in memory that is kept: the next one may read none of it.
inline void fill_kept_memory(const Sharding& rows) {
  const fovea::distributed::RowWindow& kept = rows.kept_memory();
  std::fill_n(kept.data(), kept.size_bytes(), std::byte{0xff});
}

/// Makes a call over ranks. A rank that is alone sends nothing.
template <class Call>
void call_over_ranks(const Call& call, const Sharding& rows, AnyExecutor& executor) {
  if constexpr (std::is_void_v<decltype(call(Where::ranks, rows, executor))>) {
    call(Where::ranks, rows, executor);
  } else {
    const fovea::distributed::CommStats comm_stats = call(Where::ranks, rows, executor);
    if (all_ranks().size() == 1) {
      EXPECT_EQ(comm_stats.bytes_sent, 0);
    }
  }
}

/// Compares a call over ranks with one process.
/// \param what the call is   \param lse the tensor that is not requested without a backward pass,
/// or null   \param layout of rows
/// \param forward, backward called as forward(where), or as forward(where, rows, executor)
template <class T, class Forward, class Backward>
void compare_sharded(const std::string& what, ShardedTensors<T>& call, const Passes& passes,
                     const AnyShardedTensor* lse, const RowLayout& layout, Bytes& bytes,
                     const Forward& forward, const Backward& backward) {
  const IsaLevel level = drawn_level(bytes);
  {
    const AtLevel at(level);
    forward(Where::one_process);
    if (passes.has_backward) backward(Where::one_process);
  }
  const CallRows parts(layout, call.rows_of_block);
  const Sharding& rows = parts.rows;
  SCOPED_TRACE(what + " " + scalar_name<T>() + ": " + call.sequence.text() + ", " + layout.text());
  const std::vector<std::uint8_t> of_rank = bytes_of_rank(call.sequence.seed);
  Bytes own(of_rank);
  const AtLevel at(drawn_level_like(level, own));
  AnyExecutor executor = drawn_executor_of_rank(own);
  sharded_tensors(call, passes, lse, parts, bytes, own);
  const auto is_for_backward = [d_out = call.named("d_out"),
                                d_lse = call.named("d_lse")](const AnyShardedTensor& x) {
    return &x == d_out || (&x == d_lse && x.role == Role::read) || x.role == Role::gradient;
  };
  if (passes.refuses && bytes.once_in(4)) {
    refuse_together(
        call, passes, bytes,
        [&](const AnyShardedTensor& x) { return x.role != Role::none && !is_for_backward(x); },
        [&] { forward(Where::ranks, rows, executor); });
    call.expect_untouched({Role::made, Role::kept});
  }
  if (bytes.once_in(2)) {
    forward(Where::ranks, rows, executor);
    fill_kept_memory(rows);
  }
  call_over_ranks(forward, rows, executor);
  call.expect_bits(Role::made, parts);
  call.expect_bits(Role::kept, parts);
  if (!passes.has_backward) return;
  for (const auto& x : call.tensors) {
    if (x->role == Role::kept) x->is_wanted = passes.keeps;
  }
  if (passes.refuses && bytes.once_in(4)) {
    refuse_together(call, passes, bytes, is_for_backward,
                    [&] { backward(Where::ranks, rows, executor); });
    call.expect_untouched({Role::gradient});
  }
  call_over_ranks(backward, rows, executor);
  call.expect_bits(Role::gradient, parts);
}

/// The forward pass of an operator with the tensors of a call; over ranks for
/// more = (rows, executor).
template <class Op, class Call, class... More>
auto forward_in(Where where, const Op& op, const Call& call, More&&... more) {
  using T = typename Call::Scalar;
  const fovea::InputsOf<Op, T> inputs(call.inputs(where));
  const fovea::SavedOf<Op, T> saved(call.saved(where));
  if constexpr (sizeof...(more) == 0) {
    op.forward(inputs, call.out.in(where), saved);
  } else {
    return forward(op, inputs, call.out.in(where), saved, more...);
  }
}
/// The same for the backward pass. Tensors of 16 bits have none.
template <class Op, class Call, class... More>
auto backward_in(Where where, const Op& op, const Call& call, More&&... more) {
  using T = typename Call::Scalar;
  if constexpr (std::floating_point<T>) {
    const fovea::InputsOf<Op, T> inputs(call.inputs(where));
    const fovea::SavedOf<Op, T> saved(call.saved(where));
    const fovea::GradsOf<Op, T> grads(call.grads(where));
    const View<const T> out(call.out.in(where));
    const auto d_out = out_grads<Op, T>(call.d_out.in(where), call.d_lse.in(where));
    if constexpr (sizeof...(more) == 0) {
      op.backward(inputs, out, saved, d_out, grads);
    } else {
      return backward(op, inputs, out, saved, d_out, grads, more...);
    }
  }
}

/// Computes both passes in one process.
template <class Op, class Call>
void compute_in_one_process(const Op& op, Call& call) {
  forward_in(Where::one_process, op, call);
  backward_in(Where::one_process, op, call);
}

/// How many rows of all calls had an lse so large that its rounding error is kept, too.
inline Index& large_rows() {
  static Index count = 0;
  return count;
}

/// Makes NaN of the rows that key lengths hide.
template <class T>
void hide_rows(const Tensor<T>& x, const std::vector<Index>& lengths) {
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (Index n = lengths[b]; n < x.shape()[2]; ++n) {
      set_row(x, static_cast<Index>(b), n, std::numeric_limits<T>::quiet_NaN());
    }
  }
}

/// Gives some calls data that ranks must treat alike: logits so large that lse has a second number;
/// keys that become shorter, so that running references are raised; and NaN in the rows that key
/// lengths hide.
template <class Call>
void draw_extremes(Call& call, Bytes& bytes) {
  using T = typename Call::Scalar;
  const std::uint64_t seed = call.sequence.seed;
  const auto rows = static_cast<double>(call.sequence.shape.keys);
  switch (bytes(0, 5)) {
    case 1:
      return call.q.whole.fill(gaussian(seed, 4000));
    case 2:
      return call.k.whole.fill([key = gaussian(seed), rows](Index b, Index h, Index n, Index c) {
        return (1 + 12 * (rows - static_cast<double>(n)) / rows) * key(b, h, n, c);
      });
    case 3:
      for (const ShardedTensor<T>* x : {&call.k, &call.v}) {
        if (x->held == Held::rows) hide_rows(x->whole, call.sequence.lengths);
      }
      if constexpr (requires { call.dominant; }) {
        hide_rows(call.dominant.whole, call.sequence.lengths);
      }
      return;
    default:
      return;
  }
}

/// Gives some calls rows that are not at the positions of their keys, if the operator knows them.
template <class Op>
void draw_positions(Op& op, DrawnSequence& sequence, Bytes& bytes) {
  if constexpr (requires { op.options.alignment; }) {
    const Index way = bytes(0, 7);
    if (way == 1) op.options.alignment = fovea::CausalAlignment::key_length;
    for (Index b = 0; way == 2 && b < sequence.shape.batch; ++b) {
      sequence.first_positions.push_back(bytes(-20, 20));
    }
  }
}

/// Compares attention over ranks with one process, as compare_sharded does.
/// \param made what the operator is constructed from   \param call a MemberCall of the operator
/// \param are_alike whether all ranks want the same tensors
template <class Op, class Call>
void try_sharded(const Op& op, const std::string& made, Call& call, bool are_alike,
                 const RowLayout& layout, Bytes& bytes) {
  using T = typename Call::Scalar;
  Passes passes;
  passes.has_backward = !bytes.once_in(3) && std::floating_point<T>;
  passes.keeps = bytes.once_in(2);
  passes.is_alike = are_alike;
  if (kTakesDLse<Op, T> && passes.has_backward && bytes.once_in(2)) call.d_lse.role = Role::read;
  draw_extremes(call, bytes);
  compare_sharded(
      std::string(Op::name()) + made, call, passes, &call.lse, layout, bytes,
      [&](Where where, auto&&... more) { return forward_in(where, op, call, more...); },
      [&](Where where, auto&&... more) { return backward_in(where, op, call, more...); });
  for (const auto lse : call.lse.whole.values()) {
    large_rows() += std::isfinite(lse) && std::abs(lse) > fovea::kLargeLse ? 1 : 0;
  }
}

}  // namespace fovea_test
