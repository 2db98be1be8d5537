// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED ALONE HEAP SHARDS 4)
/// \file
/// Both passes of every operator: how much memory and stack they take, and that they leave the
/// floating-point environment alone. (The tests of indexed, Smart Bird and FSAT attention count the
/// memory of their lists.)
#include <gtest/gtest.h>

#include <ios>
#include <limits>

#include "attention/gradients.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/memory.hpp"
#include "support/mxcsr.hpp"
#include "support/small_stack.hpp"

namespace fovea_test::attention_conformance_resources {

class MeasuredSoftmax : public Measured {};

TEST_P(MeasuredSoftmax, WorkspaceDoesNotGrowWithTheSequence) {
  each([]<class T>(const Case<T>& op) {
    const auto bytes = [&](Index queries, Index keys) {
      return op.workspace_bytes(sizes(queries, keys, 64, 64), 1);
    };
    // Between passes three numbers of each row wait.
    const auto waiting = [&](Index queries) {
      return op.staged ? 3 * queries * static_cast<Index>(sizeof(T)) : 0;
    };
    const Index slot = bytes(4096, 4096) - waiting(4096);
    EXPECT_EQ(slot, bytes(1 << 20, 1 << 20) - waiting(1 << 20));
    // Less only where there are fewer keys than a row has runs.
    EXPECT_LE(bytes(4096, 1) - waiting(4096), slot);
    EXPECT_EQ(slot, bytes(4096, 100) - waiting(4096));
    EXPECT_LE(slot, 4 << 20);
    EXPECT_EQ(op.workspace_bytes(sizes(4096, 4096, 64, 64), 7), 7 * slot + waiting(4096));
  });
}

/// The heap allocations of a pass.
struct HeapUse {
  std::ptrdiff_t taken = 0;        ///< bytes at the most
  std::ptrdiff_t kept = 0;         ///< bytes afterwards
  std::ptrdiff_t allocations = 0;  ///< how often
};

template <class F>
HeapUse heap_use_of(const F& pass) {
  const std::ptrdiff_t before = heap().reset();
  pass();
  return {heap().peak - before, heap().bytes - before, heap().allocations};
}

template <class T>
HeapUse heap_use_of_forward(const Case<T>& op, const Problem<T>& problem,
                            AnyExecutor* executor = nullptr) {
  const Tensor<T> out(problem.out_shape());
  return heap_use_of([&] { op.forward(problem.inputs(), out.view(), AllSaved<T>{}, executor); });
}

/// Of n queries and keys.
template <class T>
HeapUse heap_use_of_backward(const Case<T>& op, Index n, AnyExecutor* executor = nullptr) {
  const Problem<T> problem =
      make_problem(op, sizes(n, n, 1, 1), 1, {constant(1), constant(1), constant(1)});
  const Tensor<T> d_out = make_d_out(problem);
  const Written<T> from(op, problem.out_shape());
  const AllInputs<T> in = problem.inputs();
  const AllSaved<T> saved = from.saved();
  op.forward(in, from.out.view(), saved, nullptr);
  GradStorage<T> to(in, {});
  const AllGrads<T> grads = to.grads(in, {});
  return heap_use_of(
      [&] { op.backward(in, from.out.view(), saved, d_out.view(), grads, executor); });
}

/// A forward pass allocates its workspace and a few small objects.
TEST_P(Measured, AllocatesExactlyItsWorkspace) {
  each([]<class T>(const Case<T>& op) {
    for (const Index n : {Index{100}, Index{op.has_pairs() ? 1500 : 8192}}) {
      const Problem<T> problem =
          make_problem(op, sizes(n, n, 1, 1), 1, {constant(1), constant(1), constant(1)});
      const HeapUse use = heap_use_of_forward(op, problem);
      EXPECT_LE(use.taken, op.workspace_bytes(problem.shape, 1) + 1024) << n;
      EXPECT_LE(use.taken, 4 << 20) << n;
      // None per block or key.
      EXPECT_LE(use.allocations, op.in_runs ? 24 : op.has_band ? 16 : 8) << n;
      EXPECT_EQ(use.kept, 0);
    }
  });
}

TEST_P(Measured, FewQueriesAllocateExactlyTheirWorkspace) {
  each([]<class T>(const Case<T>& op) {
    const Problem<T> problem =
        make_problem(op, sizes(3, 5000, 1, 1), 1, {constant(1), constant(1), constant(1)});
    const HeapUse use = heap_use_of_forward(op, problem);
    EXPECT_LE(use.taken, op.workspace_bytes(problem.shape, 1) + 1024);
    EXPECT_LE(use.allocations, op.in_runs ? 60 : 40);
    EXPECT_EQ(use.kept, 0);
  });
}

TEST_P(Measured, EachOfTheThreadsAllocatesAWorkspace) {
  each([]<class T>(const Case<T>& op) {
    fovea::ThreadPool pool(3);
    AnyExecutor executor = AnyExecutor::of(pool);
    const Problem<T> problem = make_problem(op, {2, 2, 1, 700, 700, 8, 8});
    const HeapUse use = heap_use_of_forward(op, problem, &executor);
    EXPECT_LE(use.taken, op.workspace_bytes(problem.shape, 3) + 8192);
    EXPECT_LE(use.allocations, op.in_runs ? 80 : 40);  // of the pool's closures
  });
}

/// The weights alone would be n n elements: 9 MiB of float at the least n here.
TEST_P(Measured, BackwardMemoryIsNotQuadratic) {
  each([]<class T>(const Case<T>& op) {
    const Index n = op.has_pairs() ? 1536 : 4096;
    const HeapUse whole = heap_use_of_backward(op, n);
    const HeapUse half = heap_use_of_backward(op, n / 2);
    EXPECT_EQ(whole.kept, 0);
    EXPECT_LE(whole.taken, 3 << 20);
    EXPECT_LE(whole.taken, 2 * half.taken + 1024);
    // None per block or key; those with a band have two operators in them.
    EXPECT_LE(whole.allocations, op.has_band ? 40 : op.in_runs ? 32 : 16);
    EXPECT_EQ(whole.allocations, half.allocations);
  });
}

TEST_P(Measured, BackwardScratchIsPerThread) {
  each([]<class T>(const Case<T>& op) {
    fovea::ThreadPool pool(3);
    AnyExecutor executor = AnyExecutor::of(pool);
    const HeapUse alone = heap_use_of_backward(op, 1000);
    const HeapUse shared = heap_use_of_backward(op, 1000, &executor);
    EXPECT_LE(shared.taken, 3 * alone.taken + 16384);
    EXPECT_LE(shared.allocations, 100);  // of the pool's closures
  });
}

/// Bytes for each token that options may cost: of a run for each key, and what rows take.
constexpr Index kBytesOfAToken = Index{20} << 10;

/// Options beyond the sequence: time is not measured, but what takes memory takes time.
template <class T>
void expect_cost_of_the_sequence(const Case<T>& op, Index n) {
  const Problem<T> problem = make_problem(op, {1, 2, 1, n, n, 8, 8});
  const Index limit = n * kBytesOfAToken;
  const Tensor<T> out(problem.out_shape());
  const AllInputs<T> in = problem.inputs();
  EXPECT_LE(heap_use_of_forward(op, problem).taken, limit) << "forward";
  EXPECT_LE(heap_use_of_backward(op, n).taken, limit) << "backward";
  std::ptrdiff_t before = heap().reset();
  EXPECT_LE(op.workspace_bytes(problem.shape, 1), limit);
  EXPECT_LE(op.attended_pairs(problem.shape), n * n);
  EXPECT_LE(heap().peak - before, limit) << "counting";
  before = heap().reset();
  const AnyDecoder<T> decoder =
      op.decoder({.query_heads = 2, .key_heads = 1, .width = 8, .value_width = 8});
  for (Index row = 0; row < n; ++row) {
    decoder.step(part_of(in, row, 1, row, 1), cut(out.view(), 2, row, 1), {});
  }
  EXPECT_LE(heap().peak - before, limit) << "decoder";
}

template <class T>
void expect_costs_of_sequences() {
  for (const Case<T>& op : oversized_options_cases<T>()) {
    SCOPED_TRACE(op.name + " " + scalar_name<T>());
    for (const Index n : {50, 150}) expect_cost_of_the_sequence(op, n);
    const Problem<T> problem = make_problem(op, {2, 4, 2, 45, 50, 5, 6});
    expect_conforms(op, problem, " without bounds");
    expect_grads_conform(op, problem, " without bounds");
  }
}

TEST(OversizedOptions, CostDependsOnTheSequenceOnly) {
  expect_costs_of_sequences<float>();
  expect_costs_of_sequences<double>();
}

TEST_P(Conformance, RunsOnASmallStack) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, sizes(600, 300, 64, 64));
    Layout apart;
    apart.innermost = 2;
    const Problem<T> strided = problem.in(apart, apart, apart, apart);
    const Tensor<T> d_out = make_d_out(problem);
    const BothResults<T> expected = run_both(op, problem, d_out);
    BothResults<T> got;
    BothResults<T> got_strided;
    on_small_stack([&] {
      got = run_both(op, problem, d_out);
      got_strided = run_both(op, strided, d_out, nullptr, apart);
    });
    EXPECT_TRUE(same_bits(expected, got));
    EXPECT_TRUE(same_bits(expected, got_strided));
  });
}

#if defined(__x86_64__)

/// Without subnormals in the data, flushing them changes no bit; unless dropout leaves of a row the
/// faintest weights alone, whose products with values are subnormal.
TEST_P(Conformance, FlushToZeroDoesNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    for (const double spread : {1.0, 60.0}) {
      const Problem<T> problem = make_problem(op, sizes(70, 150, 6, 5), 3,
                                              {gaussian(3, spread), gaussian(4), gaussian(5)});
      const Expected<T> expected = op.oracle(problem.inputs());
      at_each_level([&] {
        const Result<T> plain = run(op, problem);
        const auto flushed = [&] {
          const WithMxcsr with(kFlushToZero | kDenormalsAreZero);
          return run(op, problem);
        }();
        EXPECT_TRUE(within_ratio(flushed.out, expected.out, kOutBound));
        if (op.is_softmax) {
          EXPECT_TRUE(within_ratio(flushed.lse, expected.lse, kLseBound));
        }
        if (op.drops() && spread > 1) return;
        EXPECT_TRUE(same_bits(plain, flushed)) << spread;
      });
    }
  });
}

TEST_P(Conformance, ThreadsUseTheCallersFloatEnvironment) {
  each([]<class T>(const Case<T>& op) {
    const double tiny = static_cast<double>(std::numeric_limits<T>::min());
    const Problem<T> problem = make_problem(op, {1, 4, 2, 150, 140, 5, 6}, 3,
                                            {gaussian(3), gaussian(4), gaussian(5, tiny)});
    InThreadsOfTheirOwn executor;
    AnyExecutor threads = AnyExecutor::of(executor);
    at_each_level([&] {
      for (const unsigned mode : kMxcsrModes) {
        const WithMxcsr with(mode);
        const unsigned before = _mm_getcsr() & ~kStickyFlags;
        const BothResults<T> alone = run_both(op, problem);
        EXPECT_EQ(_mm_getcsr() & ~kStickyFlags, before);
        EXPECT_TRUE(same_bits(alone, run_both(op, problem, &threads))) << std::hex << mode;
      }
    });
  });
}

#endif

INSTANTIATE_TEST_SUITE_P(, Conformance, conforming_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, Measured, measured_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, MeasuredSoftmax, testing::ValuesIn(subjects([](const auto& op) {
                           return op.is_softmax && !op.makes_lists;
                         })),
                         test_name);

}  // namespace fovea_test::attention_conformance_resources
