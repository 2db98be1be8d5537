// SPDX-License-Identifier: MIT
/// \file
/// A user's pattern whose plan throws while threads are running: the exception reaches the caller,
/// no thread waits forever, and operators, decoders and pools remain usable.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "attention/decoding.hpp"
#include "attention/gradients.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"

namespace fovea_test::attention_throwing_pattern {

using fovea::BlockStorage;
using fovea::KeyBlock;
using fovea::QueryBlock;
using fovea::Range;
using fovea::SequenceShape;
using fovea::SparseAttention;

/// Questions that plans still answer before one throws.
std::atomic<int> questions_left{0};

void ask() {
  if (--questions_left == 0) throw std::domain_error("the user's pattern");
}

/// A plan of the library that throws in one of its functions for blocks.
template <class P>
struct ThrowingPlan {
  P plan;

  Index block_count() const { return plan.block_count(); }
  Index most_runs() const { return plan.most_runs(); }
  Index attended_pairs() const { return plan.attended_pairs(); }
  Index key_block_count() const { return plan.key_block_count(); }
  KeyBlock key_block(Index p) const { return plan.key_block(p); }
  Range query_blocks(Index p) const { return plan.query_blocks(p); }
  Range key_blocks(const QueryBlock& block) const { return plan.key_blocks(block); }
  bool meets(Index b, Index p) const {
    ask();
    return plan.meets(b, p);
  }
  QueryBlock block(Index b, BlockStorage& storage) const {
    ask();
    return plan.block(b, storage);
  }
};
template <class P>
ThrowingPlan(P) -> ThrowingPlan<P>;

template <class Pattern>
struct ThrowingPattern {
  Pattern pattern;

  bool allows(Index i, Index j) const { return pattern.allows(i, j); }
  auto plan(const SequenceShape& shape) const { return ThrowingPlan{pattern.plan(shape)}; }
};
template <class Pattern>
ThrowingPattern(Pattern) -> ThrowingPattern<Pattern>;

/// Calls f with the n-th question throwing, n = 1, 2, 4, ... until none does; returns how often one
/// did.
template <class F>
int throw_at_each_question(F&& f) {
  int thrown = 0;
  for (int n = 1;; n += 1 + n / 4) {
    questions_left = n;
    const auto call = [&] {
      try {
        f();
        return false;
      } catch (const std::domain_error&) {
        return true;
      }
    };
    if (!call()) return thrown;
    ++thrown;
  }
}

const SparseAttention kOperator{
    {.patterns = {ThrowingPattern{fovea::Causal{}}, ThrowingPattern{fovea::StridedKeys{8}}}}};
const SparseAttention kPlain{{.patterns = {fovea::Causal{}, fovea::StridedKeys{8}}}};

TEST(ThrowingPattern, ReachesTheCallerOfForward) {
  const TokenTensors<float> tokens({1, 4, 2, 700, 700, 8, 8});
  const TokenTensors<float> expected({1, 4, 2, 700, 700, 8, 8});
  expected.forward(kPlain, 0, 700);
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  AllInputs<float> in = tokens.queries(0, 700, 700);
  in.k = tokens.k.view();
  in.v = tokens.v.view();
  const auto forward = [&] {
    kOperator.forward(in, tokens.out.view(), {tokens.lse.view()}, threads);
  };
  EXPECT_GT(throw_at_each_question(forward), 3);
  EXPECT_TRUE(same_results(tokens, expected));
}

/// Tasks add to the same rows in turn, so that one may wait for another, which has thrown.
TEST(ThrowingPattern, ReachesTheCallerOfBackward) {
  const AttentionShape shape{1, 4, 2, 700, 700, 8, 8};
  const TokenTensors<float> tokens(shape);
  tokens.forward(kPlain, 0, 700);
  AllInputs<float> in = tokens.queries(0, 700, 700);
  in.k = tokens.k.view();
  in.v = tokens.v.view();
  const Tensor<float> d_out(tokens.out.shape());
  d_out.fill(gaussian(9));
  GradStorage<float> expected(in, {});
  GradStorage<float> got(in, {});
  const AllSaved<float> saved{tokens.lse.view()};
  kPlain.backward(in, tokens.out.view(), saved, d_out.view(), expected.grads(in, {}));
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  const auto backward = [&] {
    kOperator.backward(in, tokens.out.view(), saved, d_out.view(), got.grads(in, {}), threads);
  };
  for (int round = 0; round < 5; ++round) EXPECT_GT(throw_at_each_question(backward), 3);
  EXPECT_TRUE(same_bits(expected.values(shape), got.values(shape)));
}

/// A decoder forgets the tokens of a step that threw.
TEST(ThrowingPattern, LeavesADecoderUnchanged) {
  const AttentionShape shape{1, 4, 2, 300, 300, 8, 8};
  const TokenTensors<float> decoded(shape);
  const TokenTensors<float> expected(shape);
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  questions_left = 0;
  auto decoder = kOperator.decoder<float>(decoded.decoder_shape());
  auto plain = kPlain.decoder<float>(decoded.decoder_shape());
  for (const Index rows : {200, 1, 90, 9}) {
    const Index row = decoder.length();
    throw_at_each_question([&] {
      EXPECT_EQ(decoder.length(), row);
      decoded.step(decoder, row, rows, threads);
    });
    questions_left = 0;
    expected.step(plain, row, rows);
  }
  EXPECT_TRUE(same_results(decoded, expected));
}

}  // namespace fovea_test::attention_throwing_pattern
