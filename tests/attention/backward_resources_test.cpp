// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED ALONE HEAP SHARDS 4)
/// \file
/// The backward pass of every operator: how much memory and stack it takes, and in which
/// floating-point environment it computes.
#include <gtest/gtest.h>

#include <ios>
#include <limits>
#include <vector>

#include "attention/gradients.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/memory.hpp"
#include "support/mxcsr.hpp"
#include "support/small_stack.hpp"

namespace fovea_test::attention_backward_resources {

/// Peak bytes and allocations of one backward pass, and what it leaves allocated.
struct Taken {
  std::ptrdiff_t bytes;
  std::ptrdiff_t kept;
  std::ptrdiff_t allocations;
};

template <class T>
Taken taken_by_backward(const Case<T>& op, Index n, AnyExecutor* executor = nullptr) {
  const Problem<T> problem =
      make_problem(op, sizes(n, n, 1, 1), 1, {constant(1), constant(1), constant(1)});
  const Tensor<T> d_out = make_d_out(problem);
  const Tensor<T> out(problem.out_shape());
  const Tensor<T> lse(op.is_softmax ? problem.row_shape() : Shape{});
  const AllInputs<T> in = problem.inputs();
  const AllSaved<T> saved = op.is_softmax ? AllSaved<T>{lse.view()} : AllSaved<T>{};
  op.forward(in, out.view(), saved, nullptr);
  GradStorage<T> to(in, {});
  const AllGrads<T> grads = to.grads(in, {});
  const std::ptrdiff_t before = heap().reset();
  op.backward(in, out.view(), saved, d_out.view(), grads, executor);
  const std::ptrdiff_t peak = heap().peak;
  const std::ptrdiff_t kept = heap().bytes - before;
  const std::ptrdiff_t allocations = heap().allocations;
  return {peak - before, kept, allocations};
}

/// The weights alone would be n n elements: 9 MiB of float at the least n here.
TEST_P(Conformance, BackwardMemoryIsNotQuadratic) {
  each([]<class T>(const Case<T>& op) {
    if (op.makes_lists)
      GTEST_SKIP() << "the tests of indexed, Smart Bird and FSAT attention count it";
    const Index n = op.has_pairs() ? 1536 : 4096;
    const Taken whole = taken_by_backward(op, n);
    const Taken half = taken_by_backward(op, n / 2);
    EXPECT_EQ(whole.kept, 0);
    EXPECT_LE(whole.bytes, 3 << 20);
    EXPECT_LE(whole.bytes, 2 * half.bytes + 1024);
    // None per block or key; those with a band have two operators in them.
    EXPECT_LE(whole.allocations, op.has_band ? 40 : op.in_runs ? 32 : 16);
    EXPECT_EQ(whole.allocations, half.allocations);
  });
}

/// Options beyond the sequence, as in conformance_resources_test.cpp.
template <class T>
void expect_costs_of_sequences() {
  for (const Case<T>& op : oversized_options_cases<T>()) {
    SCOPED_TRACE(op.name + " " + scalar_name<T>());
    for (const Index n : {50, 150}) EXPECT_LE(taken_by_backward(op, n).bytes, n * (20 << 10)) << n;
    expect_grads_conform(op, make_problem(op, {2, 4, 2, 45, 50, 5, 6}), " without bounds");
  }
}

TEST(OversizedOptions, BackwardCostDependsOnTheSequenceOnly) {
  expect_costs_of_sequences<float>();
  expect_costs_of_sequences<double>();
}

TEST_P(Conformance, BackwardScratchIsPerThread) {
  each([]<class T>(const Case<T>& op) {
    if (op.makes_lists)
      GTEST_SKIP() << "the tests of indexed, Smart Bird and FSAT attention count it";
    fovea::ThreadPool pool(3);
    AnyExecutor executor = AnyExecutor::of(pool);
    const Taken alone = taken_by_backward(op, 1000);
    const Taken shared = taken_by_backward(op, 1000, &executor);
    EXPECT_LE(shared.bytes, 3 * alone.bytes + 16384);
    EXPECT_LE(shared.allocations, 100);  // of the pool's closures
  });
}

TEST_P(Conformance, BackwardRunsOnASmallStack) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> problem = make_problem(op, sizes(600, 300, 64, 64));
      const Tensor<T> d_out = make_d_out(problem);
      Layout apart;
      apart.innermost = 2;
      const Problem<T> strided = problem.in(apart, apart, apart, apart);
      const Gradients<T> expected = run_backward(op, problem, d_out);
      Gradients<T> got;
      Gradients<T> got_strided;
      on_small_stack([&] {
        got = run_backward(op, problem, d_out);
        got_strided = run_backward(op, strided, d_out, nullptr, apart);
      });
      EXPECT_TRUE(same_bits(expected, got));
      EXPECT_TRUE(same_bits(expected, got_strided));
    });
  });
}

#if defined(__x86_64__)

TEST_P(Conformance, ThreadsUseTheCallersFloatEnvironmentInBackward) {
  each([]<class T>(const Case<T>& op) {
    const double tiny = static_cast<double>(std::numeric_limits<T>::min());
    const Problem<T> problem = make_problem(op, {1, 4, 2, 150, 140, 5, 6}, 3,
                                            {gaussian(3), gaussian(4), gaussian(5, tiny)});
    const Tensor<T> d_out = make_d_out(problem);
    InThreadsOfTheirOwn executor;
    AnyExecutor threads = AnyExecutor::of(executor);
    at_each_level([&] {
      for (const unsigned mode : kMxcsrModes) {
        const WithMxcsr with(mode);
        const unsigned before = _mm_getcsr() & ~kStickyFlags;
        const Gradients<T> alone = run_backward(op, problem, d_out);
        EXPECT_EQ(_mm_getcsr() & ~kStickyFlags, before);
        EXPECT_TRUE(same_bits(alone, run_backward(op, problem, d_out, &threads)))
            << std::hex << mode;
      }
    });
  });
}

#endif

INSTANTIATE_TEST_SUITE_P(, Conformance, conforming_subjects(), test_name);

}  // namespace fovea_test::attention_backward_resources
