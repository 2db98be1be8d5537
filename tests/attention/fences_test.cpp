// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// Every operator with all of its memory between guard pages: inputs, outputs, saved tensors,
/// scratch and decoders. It stays within each piece, uses no freed memory, and its results do not
/// depend on uninitialised memory.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/pieces.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/between_fences.hpp"
#include "support/executors.hpp"

namespace fovea_test::attention_fences {

class Fenced : public Conformance {};

/// A decoder that takes tokens in pieces, goes back, is copied and saved.
template <class T>
std::vector<T> run_decoder(const Case<T>& op, const Problem<T>& problem) {
  const AttentionShape& s = problem.shape;
  AnyDecoder<T> decoder = op.decoder(decoder_shape(s));
  std::vector<T> all;
  const auto step = [&](Index count) {
    const Written<T> to(op, {s.batch, s.query_heads, count, s.value_width});
    const Index row = decoder.length();
    decoder.step(rows_with_keys(problem.inputs(), row, count, row), to.out.view(), to.saved());
    for (const Tensor<T>* x : {&to.out, &to.lse}) {
      const std::vector<T> values = x->values();
      all.insert(all.end(), values.begin(), values.end());
    }
  };
  for (const Index count : {33, 1, 20}) step(count);
  decoder = decoder.fork();
  decoder.rollback(decoder.length());
  step(2);
  if (decoder.save) {
    const std::vector<std::byte> bytes = decoder.save();
    decoder = op.decoder(decoder_shape(s));
    decoder.restore(bytes);
  }
  step(1);
  decoder.clear();
  step(3);
  return all;
}

/// The outputs of all passes of an operator.
template <class T>
struct Everything {
  Result<T> out;
  Gradients<T> grads;
  std::vector<T> decoded;
};

/// Makes a problem and runs all of it.
template <class T, class Make>
Everything<T> run_all(const Case<T>& op, const Make& make, AnyExecutor* executor) {
  const Problem<T> problem = make();
  Everything<T> all{run(op, problem, executor), run_backward(op, problem, executor), {}};
  if (op.has_decoder && problem.cu_q.empty() && problem.key_lengths.empty()) {
    all.decoded = run_decoder(op, problem);
  }
  return all;
}

template <class T, class Make>
void expect_same_between_fences(const Case<T>& op, const Make& make, AnyExecutor* executor) {
  const Everything<T> expected = run_all(op, make, nullptr);
  between_fences([&] {
    const Everything<T> got = run_all(op, make, executor);
    EXPECT_TRUE(same_bits(expected.out, got.out));
    EXPECT_TRUE(same_bits(expected.grads, got.grads));
    EXPECT_TRUE(same_bits(expected.decoded, got.decoded));
  });
}

/// Prints how many pieces of memory there were.
class Pieces : public testing::Environment {
 public:
  void TearDown() override {
    std::printf("pieces of memory between fences: %td\n", FencedHeap::pieces());
  }
};

TEST_P(Fenced, StaysWithinItsMemory) {
  static const fovea::ThreadPool pool(3);
  static AnyExecutor threads = AnyExecutor::of(pool);
  [[maybe_unused]] static const auto* const pieces = testing::AddGlobalTestEnvironment(new Pieces);
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      expect_same_between_fences(
          op,
          [&] {
            return make_problem(op, AttentionShape{2, 4, 2, 61, 61, 5, 7});
          },
          nullptr);
      const auto with_lengths = [&] {
        Problem<T> problem = make_problem(op, AttentionShape{2, 2, 1, 19, 71, 33, 3});
        problem.key_lengths = {problem.shape.keys, 17};
        return problem;
      };
      expect_same_between_fences(op, with_lengths, nullptr);
    });
    expect_same_between_fences(
        op,
        [&] {
          return make_problem(op, AttentionShape{1, 2, 1, 66, 66, 16, 16});
        },
        &threads);
    // Segments of keys are more tasks than rows are.
    const auto few_rows = [&] {
      Problem<T> problem = make_problem(op, AttentionShape{1, 1, 1, 3, 3100, 4, 3});
      problem.key_lengths = {problem.shape.keys};
      return problem;
    };
    Backwards backwards;
    AnyExecutor last_worker = AnyExecutor::of(backwards);
    expect_same_between_fences(op, few_rows, &last_worker);
    if (!op.packs) return;
    const auto packed = [&] {
      return make_packed(op, AttentionShape{1, 2, 1, 0, 0, 9, 1}, {13, 0, 41, 1}, {20, 3, 33, 1});
    };
    expect_same_between_fences(op, packed, &threads);
  });
}

/// The fences themselves.
TEST(FencedHeapDeathTest, DetectsAccessOutsideABlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // A multiple of the alignment, so that the guard page follows immediately.
  constexpr std::ptrdiff_t kCount = FencedHeap::kLeastAlignment == 1 ? 3 : 4;
  const volatile std::size_t count = kCount;
  const auto touch = [&](Fence fence, std::ptrdiff_t place) {
    const FencedHeap fences(fence, 0);
    const auto numbers = std::make_unique<float[]>(count);
    volatile float* const at = numbers.get();
    at[place] = at[place] + 1;
  };
  EXPECT_DEATH(touch(Fence::behind, kCount), "");
  EXPECT_DEATH(touch(Fence::before, -1), "");
  std::ptrdiff_t before = FencedHeap::changed();
  touch(Fence::behind, kCount - 1);
  touch(Fence::before, 0);
  EXPECT_EQ(FencedHeap::changed(), before);
  touch(Fence::behind, -1);
  touch(Fence::before, kCount);
  EXPECT_GT(FencedHeap::changed(), before + 2);
}

INSTANTIATE_TEST_SUITE_P(, Fenced, arithmetic_subjects(), test_name);

}  // namespace fovea_test::attention_fences
