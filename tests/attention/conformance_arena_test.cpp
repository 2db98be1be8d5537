// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED ALONE HEAP SHARDS 4)
/// \file
/// Every operator with scratch memory in an arena: workspace_bytes is sufficient, the bits are the
/// same, less memory or an arena in use is refused before anything is written, and nothing large is
/// allocated elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/pieces.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/failing_allocations.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_conformance_arena {

using fovea::Arena;

/// A call of an operator, and what it writes.
struct Trial {
  std::function<void()> poison;           ///< writes kUntouched to all outputs
  std::function<void(AnyExecutor*)> run;  ///< makes the call
  std::function<bool()> untouched;        ///< whether all outputs are kUntouched
  std::function<bool()> as_expected;      ///< whether they have the bits of a call without arena

  void run_in(Arena& arena, const fovea::ThreadPool& pool) const {
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    poison();
    run(&executor);
  }
};

std::string too_small(Index size, Index needed) {
  return "Arena: size_bytes is " + std::to_string(size) + "; expected at least " +
         std::to_string(needed) + ", which the call needs";
}

/// The bytes that a call needs, from the message for an empty arena.
Index needed_bytes(const Trial& trial, const fovea::ThreadPool& pool) {
  Arena none(0);
  const std::string message = refusal([&] { trial.run_in(none, pool); });
  const std::string begin = "Arena: size_bytes is 0; expected at least ";
  if (message.substr(0, begin.size()) != begin) {
    ADD_FAILURE() << message;
    return 1;
  }
  EXPECT_TRUE(trial.untouched());
  return std::stoll(message.substr(begin.size()));
}

/// The size in the message is sufficient, and a byte less is not.
void expect_needs(const Trial& trial, Index needed, const fovea::ThreadPool& pool) {
  for (const Index size : {needed / 2, needed - 1}) {
    Arena small(size);
    EXPECT_EQ(refusal([&] { trial.run_in(small, pool); }), too_small(size, needed));
    EXPECT_TRUE(trial.untouched());
  }
  Arena enough(needed);
  for (int again = 0; again < 2; ++again) {
    trial.run_in(enough, pool);
    EXPECT_TRUE(trial.as_expected());
  }
}

/// \param bytes the operator's workspace_bytes with that many workers
/// \param exactly whether it takes no less, and all of it from the arena
void expect_serves(const Trial& trial, const std::function<Index(Index)>& bytes, bool exactly) {
  for (const int workers : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    const fovea::ThreadPool pool(workers);
    Arena arena(bytes(workers));
    for (int again = 0; again < 2; ++again) {
      trial.run_in(arena, pool);
      EXPECT_TRUE(trial.as_expected());
    }
    {
      const fovea::ArenaLease other(arena);
      EXPECT_EQ(
          refusal([&] { trial.run_in(arena, pool); }),
          "Arena: the memory is in use by another call; use one arena for each concurrent call");
      EXPECT_TRUE(trial.untouched());
    }
    const Index needed = needed_bytes(trial, pool);
    EXPECT_LE(needed, arena.size_bytes());
    if (exactly) {
      EXPECT_EQ(needed, arena.size_bytes());
    }
    expect_needs(trial, needed, pool);
  }
}

/// The forward pass of a problem.
template <class T>
struct Forward {
  Forward(const Case<T>& of, const Problem<T>& problem)
      : op(of),
        in(problem.inputs()),
        to(op, problem.out_shape()),
        expected(fovea_test::run(op, problem)) {}

  Trial trial() const {
    return {[this] { to.fill(kUntouched); },
            [this](AnyExecutor* executor) { op.forward(in, to.out.view(), to.saved(), executor); },
            [this] { return to.holds(kUntouched); },
            [this] { return bool(same_bits(expected, to.result())); }};
  }

  const Case<T>& op;
  AllInputs<T> in;
  Written<T> to;
  Result<T> expected;
};

/// The backward pass of a problem, with all gradients.
template <class T>
struct Backward {
  Backward(const Case<T>& op, const Problem<T>& problem)
      : forward(op, problem),
        d_out(make_d_out(problem)),
        to(forward.in, {}),
        grads(to.grads(forward.in, {})),
        expected(run_backward(op, problem, d_out)) {
    op.forward(forward.in, forward.to.out.view(), forward.to.saved(), nullptr);
  }

  Trial trial() {
    return {[this] { to.fill(kUntouched); },
            [this](AnyExecutor* executor) {
              forward.op.backward(forward.in, forward.to.out.view(), forward.to.saved(),
                                  d_out.view(), grads, executor);
            },
            [this] { return to.holds(kUntouched); },
            [this] { return bool(same_bits(expected, to.values(expected.shape))); }};
  }

  Forward<T> forward;
  Tensor<T> d_out;
  GradStorage<T> to;
  AllGrads<T> grads;
  Gradients<T> expected;
};

TEST_P(Conformance, ForwardInAnArena) {
  each([]<class T>(const Case<T>& op) {
    for (const Index queries : {150, 3}) {
      const Problem<T> problem = make_problem(op, AttentionShape{2, 4, 2, queries, 150, 8, 8});
      const Forward<T> forward(op, problem);
      expect_serves(
          forward.trial(),
          [&](Index workers) { return op.workspace_bytes(problem.shape, workers); },
          queries > 3 && !op.makes_lists);
    }
  });
}

TEST_P(Conformance, BackwardInAnArena) {
  each([]<class T>(const Case<T>& op) {
    // Rows with a large lse need extra memory, which workspace_bytes includes.
    for (const double spread : {1.0, 60.0}) {
      const Problem<T> problem =
          make_problem(op, AttentionShape{2, 4, 2, 150, 150, 8, 8}, 1,
                       {gaussian(1, spread), gaussian(2, spread), gaussian(3)});
      Backward<T> backward(op, problem);
      expect_serves(
          backward.trial(),
          [&](Index workers) { return op.backward_workspace_bytes(problem.shape, workers); },
          !op.makes_lists && !op.has_band && !op.sums_sequences);
    }
  });
}

/// Packed sequences may need more than their rows alone: the size in the refusal.
TEST_P(Conformance, PackedSequencesInAnArena) {
  each([]<class T>(const Case<T>& op) {
    if (!op.packs) return;
    Problem<T> problem = make_problem(op, AttentionShape{1, 4, 2, 150, 150, 8, 8});
    problem.cu_q = {0, 40, 41, 150};
    const fovea::ThreadPool pool(2);
    const Forward<T> forward(op, problem);
    expect_needs(forward.trial(), needed_bytes(forward.trial(), pool), pool);
    Backward<T> backward(op, problem);
    expect_needs(backward.trial(), needed_bytes(backward.trial(), pool), pool);
  });
}

/// A step that an arena is too small for leaves the decoder as it was; one of the size that
/// `forward` takes with the same queries and keys serves.
TEST_P(Conformance, DecodersInAnArena) {
  each([]<class T>(const Case<T>& op) {
    if (!op.has_decoder) return;
    constexpr Index before = 90;
    constexpr Index count = 30;
    const Problem<T> problem =
        make_problem(op, AttentionShape{1, 4, 2, before + count, before + count, 8, 8});
    const auto tokens = [in = problem.inputs()](Index first, Index number) {
      return rows_with_keys(in, first, number, first);
    };
    const AnyDecoder<T> decoder =
        op.decoder({.query_heads = 4, .key_heads = 2, .width = 8, .value_width = 8});
    const Tensor<T> out({1, 4, count, 8}), prompt({1, 4, before, 8});
    decoder.step(tokens(0, before), prompt.view(), {});
    const AllInputs<T> next = tokens(before, count);
    const AnyDecoder<T> other = decoder.fork();
    other.step(next, out.view(), {});
    const std::vector<T> expected = out.values();
    const fovea::ThreadPool pool(2);
    Arena none(0);
    AnyExecutor in_none = AnyExecutor::of(pool, &none);
    out.fill(constant(kUntouched));
    if (refusal([&] { decoder.step_on(next, out.view(), {}, &in_none); }) == "accepted") {
      EXPECT_TRUE(same_bits(expected, out.values()));
      return;
    }
    EXPECT_TRUE(is_untouched(out.values()));
    EXPECT_EQ(decoder.length(), before);
    Arena arena(op.workspace_bytes({1, 4, 2, count, before + count, 8, 8}, 2));
    AnyExecutor in_arena = AnyExecutor::of(pool, &arena);
    decoder.step_on(next, out.view(), {}, &in_arena);
    EXPECT_TRUE(same_bits(expected, out.values()));
  });
}

/// Only small lists are allocated elsewhere. (The tests of indexed, Smart Bird and FSAT attention
/// count the others.)
TEST_P(Measured, CallsInAnArenaAllocateOnlySmallLists) {
  each([]<class T>(const Case<T>& op) {
    const Index n = op.has_pairs() ? 600 : 2000;
    const Problem<T> problem =
        make_problem(op, sizes(n, n, 1, 1), 1, {constant(1), constant(1), constant(1)});
    Backward<T> backward(op, problem);
    Arena arena((std::max)(op.workspace_bytes(problem.shape, 1),
                           op.backward_workspace_bytes(problem.shape, 1)));
    const fovea::Serial serial;
    AnyExecutor executor = AnyExecutor::of(serial, &arena);
    for (const Trial& trial : {backward.forward.trial(), backward.trial()}) {
      const std::ptrdiff_t before = heap().reset();
      trial.run(&executor);
      EXPECT_LE(heap().peak - before, 2048);
      EXPECT_EQ(heap().bytes, before);
    }
  });
}

/// The same code serves all scalars.
auto in_float(bool with_lists) {
  std::vector<Subject> all;
  for (const Case<float>& op : all_cases<float>()) {
    if (with_lists || !op.makes_lists) all.push_back({&op});
  }
  return testing::ValuesIn(all);
}
INSTANTIATE_TEST_SUITE_P(, Conformance, in_float(true), test_name);
INSTANTIATE_TEST_SUITE_P(, Measured, in_float(false), test_name);

}  // namespace fovea_test::attention_conformance_arena
