// SPDX-License-Identifier: MIT
/// \file
/// Calls over ranks of fixed sizes: the comparison with one process, and refusals of what one rank
/// passes.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <string>
#include <vector>

#include "distributed/operator_call.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

/// The arguments of a rank's call, of which a test makes one wrong.
template <class Op, class T>
struct OwnArguments {
  fovea::InputsOf<Op, T> inputs;
  View<T> out;
  fovea::SavedOf<Op, T> saved;
  View<const T> d_out, d_lse;
  fovea::GradsOf<Op, T> grads;
};

/// Both passes of an operator over ranks, in one layout of rows. A rank's tensors have memory
/// layouts of their own.
template <class Op, class Call>
class RankCall {
  using T = typename Call::Scalar;

 public:
  RankCall(const Op& op, Call& of, const RowLayout& layout)
      : call(of),
        own_count(layout.count(all_ranks().rank())),
        rows_of_last(std::to_string(layout.count(last))),
        op_(op),
        rows_(layout, of.rows_of_block) {
    const std::vector<std::uint8_t> numbers = bytes_of_rank(call.sequence.seed);
    Bytes bytes(numbers);
    for (const auto& x : call.tensors) {
      if (x->role != Role::none) x->sharded(rows_.of(*x), bytes);
    }
  }
  /// Of ranks with nearly equal numbers of rows.
  RankCall(const Op& op, Call& of)
      : RankCall(op, of, RowLayout::contiguous(of.sequence.shape.queries, all_ranks().size())) {}

  /// \returns the bytes that this rank sent
  template <class E = AnyExecutor>
  Index forward(const E& executor = in_this_thread()) const {
    return forward_in(Where::ranks, op_, call, rows(), executor).bytes_sent;
  }
  template <class E = AnyExecutor>
  Index backward(const E& executor = in_this_thread()) const {
    return backward_in(Where::ranks, op_, call, rows(), executor).bytes_sent;
  }
  /// Expects the bits of one process, and that what this rank does not want is untouched.
  void expect(Role role) const { call.expect_bits(role, rows_); }

  OwnArguments<Op, T> arguments() const {
    return {call.inputs(Where::ranks),   call.out.in(Where::ranks),   call.saved(Where::ranks),
            call.d_out.in(Where::ranks), call.d_lse.in(Where::ranks), call.grads(Where::ranks)};
  }
  /// The message that refuses a forward pass with these arguments, or one of another operator.
  std::string refused(const OwnArguments<Op, T>& a) const { return refused(op_, a); }
  template <class E = fovea::Serial>
  std::string refused(const Op& op, const OwnArguments<Op, T>& a, E&& executor = {}) const {
    return refusal(
        [&] { fovea::distributed::forward(op, a.inputs, a.out, a.saved, rows(), executor); });
  }
  /// The same of a backward pass.
  std::string refused_backward(const OwnArguments<Op, T>& a) const {
    return refused_backward(op_, a);
  }
  std::string refused_backward(const Op& op, const OwnArguments<Op, T>& a) const {
    return refusal([&] {
      fovea::distributed::backward(op, a.inputs, View<const T>(a.out), a.saved,
                                   out_grads<Op, T>(a.d_out, a.d_lse), a.grads, rows());
    });
  }

  /// Expects that a forward pass is refused if the last rank changes its arguments, and that
  /// nothing is written.
  /// \param change called as change(arguments)   \param said by the last rank, as in is_like
  template <class Change>
  void expect_refused(const Change& change, const std::string& said) const {
    expect_said(refused(changed(change)), begin + said);
  }
  template <class Change>
  void expect_refused_backward(const Change& change, const std::string& said) const {
    expect_said(refused_backward(changed(change)), begin + said);
  }
  /// Expects the same of arguments that are valid on a rank alone, where other ranks have others.
  template <class Change>
  void expect_differs(const Change& change, const std::string& said) const {
    if (last > 0) expect_said(refused(changed(change)), "..." + said + "...");
  }
  template <class Change>
  void expect_differs_backward(const Change& change, const std::string& said) const {
    if (last > 0) expect_said(refused_backward(changed(change)), "..." + said + "...");
  }

  const Sharding& rows() const { return rows_.rows; }

  Call& call;
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const Index own_count;  // rows of this rank
  const std::string rows_of_last;
  /// What the message of an error of the last rank begins with.
  const std::string begin = "rank " + std::to_string(last) + ": " + Op::name() + ": ";

 private:
  template <class Change>
  OwnArguments<Op, T> changed(const Change& change) const {
    OwnArguments<Op, T> all = arguments();
    if (is_last) change(all);
    return all;
  }
  void expect_said(const std::string& text, const std::string& said) const {
    EXPECT_TRUE(is_like(text, said)) << text << "\nexpected " << said;
    call.expect_untouched();
  }

  const Op op_;
  const CallRows rows_;
};

/// Expects that both passes over ranks have the bits of one process in each layout. In every second
/// one the backward pass computes again what may be saved. Tensors of 16 bits have no backward
/// pass.
template <class Op, class Call>
void expect_one_process(const Op& op, Call&& call, const std::vector<RowLayout>& layouts,
                        const AnyExecutor& executor = in_this_thread()) {
  compute_in_one_process(op, call);
  std::vector<AnyShardedTensor*> kept;
  for (const auto& x : call.tensors) {
    if (x->role == Role::kept && x->is_wanted) kept.push_back(x.get());
  }
  bool keeps = true;
  for (const RowLayout& layout : layouts) {
    SCOPED_TRACE(testing::Message()
                 << op.name() << ": " << call.sequence.text() << ", " << layout.text());
    const RankCall on_ranks(op, call, layout);
    on_ranks.forward(executor);
    on_ranks.expect(Role::made);
    on_ranks.expect(Role::kept);
    if constexpr (std::floating_point<typename std::remove_cvref_t<Call>::Scalar>) {
      for (AnyShardedTensor* x : kept) x->is_wanted = keeps;
      on_ranks.backward(executor);
      on_ranks.expect(Role::gradient);
      for (AnyShardedTensor* x : kept) x->is_wanted = true;
      keeps = !keeps;
    }
  }
}
/// The same in layouts of every kind.
template <class Op, class Call>
void expect_one_process(const Op& op, Call&& call, const AnyExecutor& executor = in_this_thread()) {
  expect_one_process(op, call, layouts_of(call.sequence.shape.queries, all_ranks().size()),
                     executor);
}
/// The same with gaussian data of these sizes.
template <class T, class Op>
void expect_one_process(const Op& op, const SquareSequence& s, const Extras& extras = {},
                        const AnyExecutor& executor = in_this_thread()) {
  expect_one_process(op, OperatorCall<Op, T>(s, extras), executor);
}

/// Expects that both passes are refused where rank 0 has another operator than all others, and
/// accepted where all have the odd one.
/// \param own what the message says of the odd one
template <class Op>
void expect_refused_together(const Op& odd, const Op& of_first, const SquareSequence& s,
                             const std::string& own) {
  OperatorCall<Op, float> call(s);
  const RankCall on_ranks(of_first, call);
  const Op& op = all_ranks().rank() == 0 ? of_first : odd;
  const auto a = on_ranks.arguments();
  const auto expect_refused = [&](const std::string& text) {
    EXPECT_NE(text.find(own + ", where rank 0 calls " + Op::name()), std::string::npos) << text;
  };
  expect_refused(on_ranks.refused(op, a));
  call.expect_untouched();
  EXPECT_EQ(on_ranks.refused(odd, a), "accepted");
  expect_refused(on_ranks.refused_backward(op, a));
  call.expect_untouched({Role::gradient});
}

/// Expects that a forward pass is refused where the operator of the last rank has another scale: an
/// option that no size shows.
template <class Op, class Call>
void expect_options_compared(const Op& op, Call& call) {
  if constexpr (requires { op.options.scale; }) {
    const RankCall own(op, call);
    if (own.last == 0) return;
    Op odd = op;
    odd.options.scale = 0.125;
    const std::string text = own.refused(own.is_last ? odd : op, own.arguments());
    EXPECT_NE(text.find(", options {"), std::string::npos) << text;
    call.expect_untouched();
  }
}

}  // namespace fovea_test
