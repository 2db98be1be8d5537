// SPDX-License-Identifier: MIT
/// \file
/// A call that is right, for tests that spoil one thing of it and read the refusal.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "support/compare.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using bench::AllGrads;
using bench::AllInputs;
using bench::AllSaved;
using fovea::FullAttention;
using fovea::LocalAttention;

inline constexpr Index kMost = std::numeric_limits<Index>::max();

/// The message of a call, which its check must give, too, or "accepted". Nothing but an accepted
/// call may write.
/// \param memory of all tensors
template <class T, class Check, class Run>
std::string refusal_of_call(const std::vector<T>& memory, const Check& check, const Run& run) {
  const std::vector<T> before(memory.begin(), memory.end());
  const std::string checked = refusal(check);
  EXPECT_TRUE(same_bits(before, memory)) << "written by the check";
  const std::string ran = refusal(run);
  EXPECT_EQ(checked, ran);
  EXPECT_TRUE(ran == "accepted" || same_bits(before, memory)) << "written before: " << ran;
  return ran;
}

/// "accepted", or the message of an operator. \param text what follows its name
template <class Op>
std::string whole_message(const std::string& text) {
  return text == "accepted" ? text : std::string(Op::name()) + ": " + text;
}

/// One call on memory that it owns; a test spoils one thing.
template <class T>
struct Call : AllInputs<T> {
  static constexpr Index kBatch = 2, kHeads = 4, kKeyHeads = 2, kQueries = 6, kKeys = 9;
  static constexpr Index kWidth = 5, kValueWidth = 3;

  Call() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<T>(i % 13) - 6;
    this->q = {at(0), {kBatch, kHeads, kQueries, kWidth}};
    this->k = {at(1000), {kBatch, kKeyHeads, kKeys, kWidth}};
    this->v = {at(2000), {kBatch, kKeyHeads, kKeys, kValueWidth}};
  }

  /// Calls check and forward; returns their message, or "accepted".
  template <class Op>
  std::string refusal(const Op& op) {
    const AllInputs<T> in = inputs();
    const AllSaved<T> to = all_saved();
    return refusal_of_call(
        memory, [&] { op.check(in, out, to); }, [&] { op.forward(in, out, to); });
  }

  /// The same of check_backward and backward.
  template <class Op>
  std::string backward_refusal(const Op& op) {
    const AllInputs<T> in = inputs();
    const View<const T> from = out;
    const AllSaved<T> kept = all_saved();
    return refusal_of_call(
        memory, [&] { op.check_backward(in, from, kept, d_out, grads); },
        [&] { op.backward(in, from, kept, d_out, grads); });
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in = *this;
    in.key_lengths = lengths;
    in.cu_seqlens_q = cu_q;
    in.cu_seqlens_k = cu_k;
    in.alibi_slopes = {slopes, slope_count};
    in.sink = {sinks, sink_count};
    return in;
  }
  AllSaved<T> all_saved() const {
    AllSaved<T> all = saved;
    all.lse = lse;
    return all;
  }

  /// Makes it a call of packed sequences, which are one batch entry.
  void pack(const std::vector<Index>& ends_q, const std::vector<Index>& ends_k) {
    const auto take_one = [](auto& x) { x = cut(x, 0, 0, 1); };
    take_one(this->q), take_one(this->k), take_one(this->v), take_one(out), take_one(lse),
        take_one(d_out);
    take_one(grads.q), take_one(grads.k), take_one(grads.v);
    cu_q = ends_q;
    cu_k = ends_k;
  }

  T* at(Index offset) { return memory.data() + offset; }

  std::vector<T> memory = std::vector<T>(12000);
  View<T> out{at(3000), {kBatch, kHeads, kQueries, kValueWidth}};
  View<T> lse{at(4000), {kBatch, kHeads, kQueries, 1}};
  std::vector<Index> lengths;
  std::vector<Index> cu_q;
  std::vector<Index> cu_k;
  const T* slopes = at(5000);
  std::size_t slope_count = 0;
  T* sinks = at(5100);
  std::size_t sink_count = 0;
  AllSaved<T> saved;  // besides lse
  View<const T> d_out{at(5200), {kBatch, kHeads, kQueries, kValueWidth}};
  AllGrads<T> grads{View<T>(at(6000), {kBatch, kHeads, kQueries, kWidth}),
                    View<T>(at(7000), {kBatch, kKeyHeads, kKeys, kWidth}),
                    View<T>(at(8000), {kBatch, kKeyHeads, kKeys, kValueWidth})};
};

/// Tests that spoil a call of either pass, which is right again for the next.
template <class T>
class SpoiltCall : public testing::Test {
 protected:
  /// Makes the call right.
  virtual void reset() { call_ = Call<T>(); }

  template <class Op>
  void expect_forward(const std::string& message, const Op& op) {
    EXPECT_EQ(call_.refusal(op), whole_message<Op>(message));
    reset();
  }
  template <class Op>
  void expect_backward(const std::string& message, const Op& op) {
    EXPECT_EQ(call_.backward_refusal(op), whole_message<Op>(message));
    reset();
  }
  /// Both passes.
  template <class Op>
  void expect(const std::string& message, const Op& op) {
    EXPECT_EQ(call_.refusal(op), whole_message<Op>(message));
    expect_backward(message, op);
  }

  Call<T> call_;
};

template <class Op, class T>
struct Kind {
  using Operator = Op;
  using Scalar = T;
};

template <class K>
class BadInput : public SpoiltCall<typename K::Scalar> {
 protected:
  using Operator = typename K::Operator;
  using Scalar = typename K::Scalar;

  void expect(const std::string& message, const Operator& op = Operator{}) {
    this->expect_forward(message, op);
  }
  void expect_backward(const std::string& message, const Operator& op = Operator{}) {
    SpoiltCall<Scalar>::expect_backward(message, op);
  }
};

using Kinds = testing::Types<Kind<FullAttention, float>, Kind<FullAttention, double>,
                             Kind<LocalAttention, float>, Kind<LocalAttention, double>>;

}  // namespace fovea_test
