// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED ALONE HEAP SHARDS 4)
/// \file
/// Failing allocations: whichever allocation of a call fails, once or from then on, the call throws
/// std::bad_alloc and changes nothing, or completes without it; nothing leaks, and the same call
/// then gives the right bits.
#include <gtest/gtest.h>

#include <vector>

#include "attention/begun_sequence.hpp"
#include "attention/gradients.hpp"
#include "support/failing_allocations.hpp"

namespace fovea_test::attention_allocation_failure {

/// So many tokens that threads share the only head of a causal far field.
constexpr AttentionShape kOneHead = {1, 1, 1, 2 * fovea::kStateSegment, 2 * fovea::kStateSegment,
                                     2, 2};

template <class T>
bool shares_heads(const Case<T>& op) {
  return op.name == "linear_causal" || op.name == "delta";
}

template <class T>
void expect_forward_of_failed_allocations(const Case<T>& op, const Problem<T>& problem) {
  SCOPED_TRACE(describe(problem));
  const Result<T> expected = run(op, problem);
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    const Written<T> to(op, problem.out_shape());
    fail_each_allocation([&] { to.fill(kUntouched); },
                         [&] { op.forward(problem.inputs(), to.out.view(), to.saved(), executor); },
                         [&] { EXPECT_TRUE(to.holds(kUntouched)); },
                         [&] { EXPECT_TRUE(same_bits(expected, to.result())); });
  });
}

TEST_P(Conformance, ForwardWithFailedAllocations) {
  each([]<class T>(const Case<T>& op) {
    const auto expect = [&](const AttentionShape& shape) {
      expect_forward_of_failed_allocations(op, make_problem(op, shape));
    };
    expect({2, 4, 2, 150, 150, 8, 8});
    expect({1, 4, 2, 3, 150, 8, 8});  // few queries
    if (shares_heads(op)) expect(kOneHead);
    if (!op.packs || !has_own_path(op.name)) return;
    expect_forward_of_failed_allocations(
        op, make_packed(op, AttentionShape{1, 4, 2, 0, 0, 8, 8}, {70, 1, 0, 9}, {60, 2, 0, 9}));
  });
}

template <class T>
void expect_backward_of_failed_allocations(const Case<T>& op, const Problem<T>& problem) {
  SCOPED_TRACE(describe(problem));
  const Tensor<T> d_out = make_d_out(problem);
  const AllInputs<T> in = problem.inputs();
  const Gradients<T> expected = run_backward(op, problem, d_out);
  const Written<T> from(op, problem.out_shape());
  op.forward(in, from.out.view(), from.saved(), nullptr);
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    GradStorage<T> to(in, {});
    const AllGrads<T> grads = to.grads(in, {});
    fail_each_allocation(
        [&] { to.fill(kUntouched); },
        [&] { op.backward(in, from.out.view(), from.saved(), d_out.view(), grads, executor); },
        [&] { EXPECT_TRUE(to.holds(kUntouched)); },
        [&] { EXPECT_TRUE(same_bits(expected, to.values(expected.shape))); });
  });
}

TEST_P(Conformance, BackwardWithFailedAllocations) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = {2, 4, 2, 150, 150, 8, 8};
    expect_backward_of_failed_allocations(op, make_problem(op, shape));
    if (!has_own_path(op.name)) return;
    if (op.is_softmax) {  // rows with a large lse need extra memory
      expect_backward_of_failed_allocations(
          op, make_problem(op, {1, 2, 1, 70, 70, 8, 8}, 1,
                           {gaussian(1, 60), gaussian(2, 60), gaussian(3)}));
    } else if (shares_heads(op)) {
      expect_backward_of_failed_allocations(op, make_problem(op, kOneHead));
    }
  });
}

/// Decoders that can be saved: what is saved, and a decoder that is to go on from there.
template <class T>
void expect_states_of_failed_allocations(const BegunSequence<T>& sequence,
                                         const AnyDecoder<T>& before) {
  if (!before.save) return;
  const std::vector<std::byte> expected = before.save();
  std::vector<std::byte> saved;
  fail_each_allocation([] {}, [&] { saved = before.save(); }, [] {},
                       [&] { EXPECT_EQ(saved, expected); });
  AnyDecoder<T> now;
  const Result<T> next = sequence.next(before.fork(), 2);
  const auto first = [&] {
    EXPECT_EQ(now.length(), 7);
    sequence.next(now, 3);
    EXPECT_EQ(now.length(), 10);
  };
  fail_each_allocation(
      [&] {
        now = sequence.op.decoder(sequence.shape);
        sequence.next(now, 7);
      },
      [&] { now.restore(expected); }, first,
      [&] {
        EXPECT_EQ(now.length(), BegunSequence<T>::kBefore);
        EXPECT_TRUE(same_bits(next, sequence.next(now, 2)));
      });
}

TEST_P(Conformance, DecodersWithFailedAllocations) {
  each([]<class T>(const Case<T>& op) {
    if (!op.has_decoder) return;
    const BegunSequence<T> sequence{op};
    serial_and_in_a_pool([&](AnyExecutor* executor) {
      const AnyDecoder<T> before = sequence.decoder();
      AnyDecoder<T> now;
      const auto reset = [&] { now = before.fork(); };
      for (const Index count : {1, 30}) {
        const AnyDecoder<T> other = before.fork();
        const Result<T> expected = sequence.next(other, count);
        const Result<T> later = sequence.next(other, 2);
        const auto goes_on = [&] {
          EXPECT_EQ(now.length(), BegunSequence<T>::kBefore + count);
          EXPECT_TRUE(same_bits(later, sequence.next(now, 2))) << "later";
        };
        const auto as_before = [&] {
          EXPECT_EQ(now.length(), BegunSequence<T>::kBefore);
          EXPECT_TRUE(same_bits(expected, sequence.next(now, count))) << "again";
          goes_on();
        };
        const Written<T> to(op, {1, 4, count, 8});
        const AllInputs<T> in = sequence.tokens(BegunSequence<T>::kBefore, count);
        fail_each_allocation(
            [&] {
              reset();
              to.fill(kUntouched);
            },
            [&] { now.step_on(in, to.out.view(), to.saved(), executor); },
            [&] {
              EXPECT_TRUE(to.holds(kUntouched));
              as_before();
            },
            [&] {
              EXPECT_TRUE(same_bits(expected, to.result()));
              goes_on();
            });
        fail_each_allocation(
            reset, [&] { now.append(in); }, as_before, goes_on);
        fail_each_allocation(
            reset, [&] { now.reserve(500); }, as_before, as_before);
        // Tokens that are taken back need no memory.
        const auto needs_none = [] { ADD_FAILURE() << "nothing of this may fail"; };
        fail_each_allocation(
            [&] {
              reset();
              now.append(sequence.tokens(BegunSequence<T>::kBefore, 1));
            },
            [&] { now.rollback(BegunSequence<T>::kBefore); }, needs_none, as_before);
        fail_each_allocation(
            reset, [&] { now.clear(); }, needs_none, [&] { EXPECT_EQ(now.length(), 0); });
      }
      expect_states_of_failed_allocations(sequence, before);
      // Made anew, and copied.
      const auto first = [&](const AnyDecoder<T>& decoder) {
        EXPECT_EQ(decoder.length(), 0);
        sequence.next(decoder, 5);
      };
      const auto nothing = [] {};
      fail_each_allocation(
          nothing, [&] { now = op.decoder(sequence.shape); }, nothing, [&] { first(now); });
      AnyDecoder<T> copy;
      fail_each_allocation(
          nothing, [&] { copy = before.fork(); }, nothing,
          [&] { EXPECT_EQ(copy.length(), BegunSequence<T>::kBefore); });
    });
  });
}

void expect_select_of_failed_allocations(fovea::SketchSearch search, Index keys) {
  const fovea::SmartBirdAttention op({.keys_per_row = 5, .causal = true, .search = search});
  Tensor<float> q({2, 1, 90, 4});
  Tensor<float> k({2, 1, keys, 4});
  q.fill(gaussian(1));
  k.fill(gaussian(2));
  AllInputs<float> in;
  in.sketch_q = q.view();
  in.sketch_k = k.view();
  const Shape shape = {2, 3, 90, 5};
  const Tensor<Index> expected(shape);
  op.select(in.sketch(), expected.view());
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    const Tensor<Index> to(shape);
    fail_each_allocation([&] { to.fill(constant(kUntouched)); },
                         [&] {
                           if (executor == nullptr) {
                             op.select(in.sketch(), to.view());
                           } else {
                             op.select(in.sketch(), to.view(), *executor);
                           }
                         },
                         [&] { EXPECT_TRUE(is_untouched(to.values())); },
                         [&] { EXPECT_EQ(expected.values(), to.values()); });
  });
}

TEST(SmartBirdSelect, FailedAllocations) {
  expect_select_of_failed_allocations(fovea::SketchSearch::exhaustive, 90);
  expect_select_of_failed_allocations(fovea::SketchSearch::blocks, 9000);
}

/// The same code serves all scalars.
auto in_float() {
  std::vector<Subject> all;
  for (const Case<float>& op : all_cases<float>()) all.push_back({&op});
  return testing::ValuesIn(all);
}
INSTANTIATE_TEST_SUITE_P(, Conformance, in_float(), test_name);

}  // namespace fovea_test::attention_allocation_failure
