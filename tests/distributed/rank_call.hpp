// SPDX-License-Identifier: MIT
/// \file
/// Calls over ranks of fixed sizes, whose tensors are those of operator_calls.hpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/operator_calls.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

/// Both passes of an operator over ranks, in one layout of rows. A rank's tensors have memory
/// layouts of their own.
template <class Op, class Call>
class RankCall {
  using T = typename Call::Scalar;
  using Inputs = fovea::InputsOf<Op, T>;
  using Saved = fovea::SavedOf<Op, T>;
  using Grads = fovea::GradsOf<Op, T>;

 public:
  RankCall(const Op& op, Call& call, const RowLayout& layout)
      : rows(all_ranks(), layout),
        op_(op),
        call_(call),
        blocks_(all_ranks(), call.layout_of_blocks(layout)) {
    const std::vector<std::uint8_t> numbers = bytes_of_rank(call.sequence.seed);
    Bytes bytes(numbers);
    for (const auto& x : call.tensors) {
      if (x->role != Role::none) x->sharded(rows_of(*x), bytes);
    }
  }

  /// \returns the bytes that this rank sent
  template <class E = AnyExecutor>
  Index forward(const E& executor = in_this_thread()) const {
    return forward_in(Where::ranks, op_, call_, rows, executor).bytes_sent;
  }
  template <class E = AnyExecutor>
  Index backward(const E& executor = in_this_thread()) const {
    return backward_in(Where::ranks, op_, call_, rows, executor).bytes_sent;
  }

  Inputs inputs() const { return call_.inputs(Where::ranks); }
  Saved saved() const { return call_.saved(Where::ranks); }
  Grads grads() const { return call_.grads(Where::ranks); }

  /// The message that refuses a forward pass with these arguments.
  std::string refused(const Inputs& in, const Saved& saved) const {
    return refused(op_, in, saved);
  }
  /// The same of another operator.
  std::string refused(const Op& other, const Inputs& in, const Saved& saved) const {
    return refusal(
        [&] { fovea::distributed::forward(other, in, call_.out.in(Where::ranks), saved, rows); });
  }
  /// The message that refuses a backward pass with these arguments.
  std::string refused(const Inputs& in, const Saved& saved, const Grads& grads) const {
    return refusal([&] {
      fovea::distributed::backward(op_, in, View<const T>(call_.out.in(Where::ranks)), saved,
                                   View<const T>(call_.d_out.in(Where::ranks)), grads, rows);
    });
  }

  /// Expects the bits of one process, and that what this rank does not want is untouched.
  void expect(Role role) const {
    for (const auto& x : call_.tensors) {
      if (x->role == role) x->expect_bits(rows_of(*x));
    }
  }
  /// Expects that nothing was written.
  void expect_untouched() const { call_.expect_untouched(); }

  const Sharding rows;

 private:
  const Sharding& rows_of(const AnyShardedTensor& x) const {
    return x.held == Held::blocks ? blocks_ : rows;
  }

  const Op& op_;
  Call& call_;
  Sharding blocks_;
};

/// Expects that both passes over ranks have the bits of one process in each layout. In every second
/// one the backward pass computes again what may be saved.
template <class Op, class Call>
void expect_one_process(const Op& op, Call&& call, const std::vector<RowLayout>& layouts,
                        const AnyExecutor& executor = in_this_thread()) {
  compute_in_one_process(op, call);
  bool keeps = true;
  for (const RowLayout& layout : layouts) {
    SCOPED_TRACE(testing::Message()
                 << op.name() << ": " << call.sequence.text() << ", " << layout.text());
    const RankCall on_ranks(op, call, layout);
    on_ranks.forward(executor);
    on_ranks.expect(Role::made);
    on_ranks.expect(Role::kept);
    for (const auto& x : call.tensors) x->is_wanted = x->role != Role::kept || keeps;
    on_ranks.backward(executor);
    on_ranks.expect(Role::gradient);
    for (const auto& x : call.tensors) x->is_wanted = true;
    keeps = !keeps;
  }
}
/// The same in layouts of every kind.
template <class Op, class Call>
void expect_one_process(const Op& op, Call&& call, const AnyExecutor& executor = in_this_thread()) {
  expect_one_process(op, call, layouts_of(call.sequence.shape.queries, all_ranks().size()),
                     executor);
}

}  // namespace fovea_test
