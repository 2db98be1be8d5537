// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Every operator on executors that do not do as they should, and in a child process: the bits
/// stay, and what an executor throws in the middle leaves operators and decoders as they were.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "attention/begun_sequence.hpp"
#include "attention/gradients.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/misbehaving_executors.hpp"

#if defined(__linux__)
#include "support/child_process.hpp"
#include "support/sanitizers.hpp"
#endif

namespace fovea_test::attention_executor_faults {

class ExecutorFaults : public Conformance {};

/// Several heads, and fewer than there are threads.
const std::vector<AttentionShape> kShapes = {{2, 4, 2, 70, 70, 8, 8}, {1, 1, 1, 600, 600, 4, 4}};

/// Tokens of a decoder's step.
constexpr Index kCount = 30;

TEST_P(ExecutorFaults, BitsWithMisbehavingExecutors) {
  each([]<class T>(const Case<T>& op) {
    for (const AttentionShape& shape : kShapes) {
      const Problem<T> problem = make_problem(op, shape);
      const Result<T> expected = run(op, problem);
      const Gradients<T> grads = run_backward(op, problem);
      for_each_false_claim([&](const std::string& name, auto& executor) {
        SCOPED_TRACE(name);
        AnyExecutor any = AnyExecutor::of(executor);
        EXPECT_TRUE(same_bits(expected, run(op, problem, &any)));
        EXPECT_TRUE(same_bits(grads, run_backward(op, problem, &any)));
      });
    }
    if (!op.has_decoder) return;
    const BegunSequence<T> sequence{op};
    const AnyDecoder<T> decoder = sequence.decoder();
    const Result<T> expected = sequence.next(decoder.fork(), kCount);
    for_each_false_claim([&](const std::string& name, auto& executor) {
      SCOPED_TRACE(name);
      AnyExecutor any = AnyExecutor::of(executor);
      EXPECT_TRUE(same_bits(expected, sequence.next(decoder.fork(), kCount, &any)));
    });
  });
}

/// Whether the call throws what ThrowsAfter does.
template <class F>
bool throws(F&& f) {
  try {
    f();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

TEST_P(ExecutorFaults, WorksAfterAnExecutorThrows) {
  each([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, kShapes[0]);
    const Result<T> expected = run(op, problem);
    const Gradients<T> grads = run_backward(op, problem);
    for (const Index calls : {0, 2}) {
      ThrowsAfter executor{calls};
      AnyExecutor any = AnyExecutor::of(executor);
      EXPECT_TRUE(throws([&] { run(op, problem, &any); }));
      EXPECT_TRUE(same_bits(expected, run(op, problem)));
      EXPECT_TRUE(throws([&] { run_backward(op, problem, &any); }));
      EXPECT_TRUE(same_bits(grads, run_backward(op, problem)));
      if (!op.has_decoder) continue;
      const BegunSequence<T> sequence{op};
      const AnyDecoder<T> decoder = sequence.decoder();
      const Result<T> next = sequence.next(decoder.fork(), kCount);
      if (throws([&] { sequence.next(decoder, kCount, &any); })) {
        // Decoders that keep sums have dropped all tokens.
        if (decoder.length() == 0) sequence.begin(decoder);
        EXPECT_EQ(decoder.length(), BegunSequence<T>::kBefore);
        EXPECT_TRUE(same_bits(next, sequence.next(decoder, kCount)));
      }
      EXPECT_EQ(decoder.length(), BegunSequence<T>::kBefore + kCount);
    }
  });
}

#if defined(__linux__) && !defined(FOVEA_TEST_TSAN)
TEST(ForkedProcess, RunsEveryOperator) {
  const fovea::ThreadPool pool(3);
  AnyExecutor any = AnyExecutor::of(pool);
  std::vector<Problem<float>> problems;
  std::vector<Result<float>> expected;
  for (const Case<float>& op : all_cases<float>()) {
    problems.push_back(make_problem(op, kShapes[0]));
    expected.push_back(run(op, problems.back(), &any));
  }
  EXPECT_EQ(in_child_process([&] {
              for (std::size_t n = 0; n < problems.size(); ++n) {
                const Case<float>& op = all_cases<float>()[n];
                SCOPED_TRACE(op.name);
                EXPECT_TRUE(same_bits(expected[n], run(op, problems[n], &any)));
              }
            }),
            "well");
}
#endif

/// The same code serves all scalars.
auto in_float() {
  std::vector<Subject> all;
  for (const Case<float>& op : all_cases<float>()) {
    if (has_own_path(op.name)) all.push_back({&op});
  }
  return testing::ValuesIn(all);
}
INSTANTIATE_TEST_SUITE_P(, ExecutorFaults, in_float(), test_name);

}  // namespace fovea_test::attention_executor_faults
