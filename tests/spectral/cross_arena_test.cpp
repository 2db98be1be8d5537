// SPDX-License-Identifier: MIT
// fovea_test(HEAP NEEDS fftw)
/// \file
/// The Fourier cross with scratch memory of an arena, as in
/// tests/attention/conformance_arena_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "fovea/core/arena.hpp"
#include "spectral/cross_case.hpp"
#include "support/failing_allocations.hpp"
#include "support/refusal.hpp"

namespace fovea_test::spectral_cross_arena {

using fovea::Arena;

/// An arena of the stated size is sufficient, a byte less is refused with nothing written, and
/// nothing large is allocated elsewhere.
template <class T>
void expect_serves(const CrossCase<T>& problem, int workers) {
  const auto [batch, heads, length, channels] = problem.f1.shape();
  const HiddenStateCross op;
  const auto expected = problem.run();
  const fovea::ThreadPool pool(workers);
  const Tensor<T> out(problem.f1.shape());
  const Tensor<T> d_f1(problem.f1.shape());
  const Tensor<T> d_f2(problem.f1.shape());
  const auto forward = [&](Arena& arena) {
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    op.forward(problem.inputs(), out.view(), executor);
  };
  const auto backward = [&](Arena& arena) {
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    op.backward(problem.inputs(), problem.g.view(), {d_f1.view(), d_f2.view()}, executor);
  };
  const Index forward_bytes = op.workspace_bytes<T>(batch, length, channels, workers);
  const Index backward_bytes = op.backward_workspace_bytes<T>(batch, length, channels, workers);
  struct Trial {
    std::function<void(Arena&)> call;
    Index bytes;
  };
  for (const Trial& trial : {Trial{forward, forward_bytes}, Trial{backward, backward_bytes}}) {
    for (const Tensor<T>* x : {&out, &d_f1, &d_f2}) x->fill(constant(kUntouched));
    for (const Index size : {trial.bytes / 2, trial.bytes - 1}) {
      Arena small(size);
      EXPECT_EQ(refusal([&] { trial.call(small); }),
                "Arena: size_bytes is " + std::to_string(size) + "; expected at least " +
                    std::to_string(trial.bytes) + ", which the call needs");
    }
    for (const Tensor<T>* x : {&out, &d_f1, &d_f2}) EXPECT_TRUE(is_untouched(x->values()));
    Arena arena(trial.bytes);
    trial.call(arena);
    const std::ptrdiff_t before = heap().reset();
    trial.call(arena);
    EXPECT_LE(heap().peak - before, 4096);
    if (trial.bytes == forward_bytes) {
      EXPECT_TRUE(same_bits(expected.out, out.values()));
    }
  }
  EXPECT_TRUE(same_bits(expected.d_f1, d_f1.values()));
  EXPECT_TRUE(same_bits(expected.d_f2, d_f2.values()));
}

TEST(HiddenStateCross, InAnArena) {
  for (const int workers : {1, 2, 3, 4}) {
    SCOPED_TRACE(workers);
    expect_serves(CrossCase<float>({2, 1, 700, 40}, {700, 33}), workers);
    expect_serves(CrossCase<double>({1, 1, 300, 40}), workers);
  }
}

}  // namespace fovea_test::spectral_cross_arena
