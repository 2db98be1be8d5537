// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Both passes of every operator: the same bits for any threads, batch, heads, strides, storage and
/// level; and the same output under the scalings by powers of two that are exact.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/same_everywhere.hpp"

namespace fovea_test::attention_conformance_bits {

class Bits : public Conformance {};
class SoftmaxBits : public SoftmaxConformance {};

/// A problem in which one row of eleven has logits in the thousands, whose lse has a low part.
template <class T>
Problem<T> with_large_rows(Problem<T> problem) {
  const Tensor<T> q = problem.q.in({});
  problem.q.fill([&](Index b, Index h, Index n, Index d) {
    return (n % 11 == 5 ? 3000 : 1) * static_cast<double>(q(b, h, n, d));
  });
  return problem;
}

/// Batches, grouped heads, several blocks and tiles, key lengths, large and small logits.
template <class T>
Problem<T> composed_problem(const Case<T>& op, Index queries = 150, Index keys = 140,
                            Index key_heads = 2) {
  Problem<T> problem = make_problem(op, {3, 4, key_heads, queries, keys, 5, 9}, 21);
  problem.key_lengths = {keys, keys / 2, 3};
  return with_large_rows(std::move(problem));
}

/// Sequences of no query, no key, neither; of one token; of fewer and of more queries than keys;
/// around tiles and blocks. One sequence if the operator takes no packed ones.
template <class T>
Problem<T> packed_problem(const Case<T>& op) {
  if (!op.packs) return make_problem(op, {1, 4, 2, 140, 141, 5, 6});
  return make_packed(op, {1, 4, 2, 0, 0, 5, 6}, {70, 0, 1, 3, 0, 65, 20, 140},
                     {70, 5, 1, 0, 0, 40, 129, 141});
}

TEST_P(Bits, ThreadsAndSchedulesDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Problem<T>& problem : {composed_problem(op, 300, 200), packed_problem(op),
                                      make_problem(op, sizes(600, 520, 3, 4))}) {
      expect_same_bits_on_executors(
          2, [&](AnyExecutor* executor) { return run_both(op, problem, executor); });
    }
  });
}

/// Output, lse and the gradients of a head's q are those of the head alone, and if it has key heads
/// of its own, so are those of k, v and beta. (Those of bias, sink and blend logits are sums over
/// what is broadcast.)
TEST_P(Bits, BatchAndHeadsDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Index key_heads : {1, 2, 4}) {
      const Problem<T> problem = composed_problem(op, 100, 140, key_heads);
      const Tensor<T> d_out = make_d_out(problem);
      const BothResults<T> all = run_both(op, problem, d_out);
      for_each_index({3, 4, 1, 1}, [&](Index b, Index h, Index, Index) {
        if (op.drops() && b + h > 0) return;  // its draws are those of its place
        if (op.by_head && h > 0) return;
        SCOPED_TRACE("batch " + std::to_string(b) + ", head " + std::to_string(h));
        const Index length[] = {problem.keys_of_batch(b)};
        const View<const T> d = cut(cut(d_out.view(), 0, b, 1), 1, h, 1);
        const auto [out, grads] = run_both(op, head_of(problem.inputs(), b, h, length), d);
        for (Index row = 0; row < problem.shape.queries; ++row) {
          EXPECT_TRUE(same_row(all.forward, {b, h, row}, out, {0, 0, row}));
        }
        const auto expect_same = [](const T* rows, const std::vector<T>& of_head) {
          EXPECT_TRUE(same_bits(rows, of_head.data(), of_head.size(),
                                {1, 1, 1, static_cast<Index>(of_head.size())}));
        };
        expect_same(all.backward.q_row(b, h, 0), grads.q);
        if (key_heads < 4) return;
        expect_same(all.backward.k_row(b, h, 0), grads.k);
        expect_same(all.backward.v_row(b, h, 0), grads.v);
        if (op.extras.beta) {
          expect_same(&all.backward.beta[as_size((b * 4 + h) * problem.shape.keys)], grads.beta);
        }
      });
    }
  });
}

/// A full key length has no effect; a shorter one equals a shorter K for rows that then see the
/// same keys.
TEST_P(Bits, KeyLengthsEqualShorterSequences) {
  each([]<class T>(const Case<T>& op) {
    if (op.draws) GTEST_SKIP() << "it draws other keys in a shorter sequence";
    // The effect on rows whose positions change is tested with packed sequences (key_length_test).
    const bool is_moved = op.options.alignment == fovea::CausalAlignment::key_length;
    at_each_level([&] {
      Problem<T> problem = make_problem(op, {2, 2, 1, 70, 150, 4, 3});
      const Result<T> none = run(op, problem);
      problem.key_lengths = {150, 150};
      EXPECT_TRUE(same_bits(none, run(op, problem)));
      for (const Index length : {0, 1, 100, 127, 128, 129, 149}) {
        problem.key_lengths = {length, 150};
        const Result<T> cut = run(op, problem);
        for (Index row = 0; row < 70; ++row) {
          EXPECT_TRUE(same_row(none, {1, 1, row}, cut, {1, 1, row})) << length;
          if (is_moved || (op.is_square && row >= length)) continue;  // another row, or no token
          bool loses = false;
          for (Index j = length; j < 150; ++j) {
            loses = loses || op.sees(problem.shape, 0, 0, row, j);
          }
          if (loses) continue;
          EXPECT_TRUE(same_row(none, {0, 0, row}, cut, {0, 0, row})) << length;
        }
      }
    });
  });
}

/// Small problems of all widths, those of whole registers among them, and those with batches,
/// lengths and packed sequences.
template <class T>
Problem<T> drawn_kind(Bytes& bytes, const Case<T>& op) {
  static const std::vector<Index> widths = register_widths();
  switch (bytes(0, 3)) {
    case 0:
      return composed_problem(op, 37, 141);
    case 1:
      return packed_problem(op);
    case 2: {
      const Index width = drawn_of(bytes, widths);
      return make_problem(op, sizes(19, bytes.once_in(2) ? 33 : 140, width, width));
    }
    default: {
      const Index width = bytes(1, 33);
      return make_problem(op, sizes(19, 131, width, 34 - width));
    }
  }
}

/// Each tensor in a place of its own: any order of axes, with gaps, columns apart, axes that run
/// backwards. Many touch a page that cannot be read: a read beyond them is a crash.
TEST_P(Bits, LayoutsDoNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    each_drawn(100, 1, [&](std::span<const std::uint8_t> data) {
      Bytes bytes(data);
      const Problem<T> dense = drawn_kind(bytes, op);
      const Layout of_q = drawn_input_layout(bytes);
      const Layout of_k = drawn_input_layout(bytes);
      const Layout of_v = drawn_input_layout(bytes);
      const Problem<T> elsewhere = dense.in(of_q, of_k, of_v, drawn_input_layout(bytes));
      const Tensor<T> d_out = make_d_out(dense);
      const Tensor<T> d_out_elsewhere = d_out.in(drawn_input_layout(bytes));
      const Layout written = drawn_layout(bytes);
      at_each_level([&] {
        EXPECT_TRUE(same_bits(run_both(op, dense, d_out),
                              run_both(op, elsewhere, d_out_elsewhere, nullptr, written)))
            << describe(dense);
      });
    });
  });
}

/// Inputs, and d_out.
TEST_P(Bits, BroadcastInputsEqualMaterialisedOnes) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (int mask = 1; mask < 16; ++mask) {
      Layout layout;
      for (std::size_t d = 0; d < 4; ++d) layout.broadcast[d] = (mask >> d & 1) != 0;
      for (const int which : {0, 1, 2}) {
        const Problem<T> problem = make_problem(op, {2, 2, 2, 35, 135, 4, 3}, 31);
        Problem<T> broadcast = make_problem(op, problem.shape, 31);
        const auto make = [&](Tensor<T>& thin, const Tensor<T>& full) {
          thin = full.in(layout);  // the last element written is checked for its axis
          full.fill([&](Index b, Index h, Index n, Index d) { return thin(b, h, n, d); });
        };
        if (which == 0) make(broadcast.q, problem.q);
        if (which == 1) make(broadcast.k, problem.k);
        if (which == 2) make(broadcast.v, problem.v);
        EXPECT_TRUE(same_bits(run(op, problem), run(op, broadcast))) << mask << " " << which;
      }
      const Problem<T> problem = composed_problem(op, 37, 141);
      const Tensor<T> thin = make_d_out(problem).in(layout);
      EXPECT_TRUE(
          same_bits(run_backward(op, problem, thin.in({})), run_backward(op, problem, thin)))
          << mask;
    }
  });
}

TEST_P(Bits, LevelsWithFusedMultiplyAddAgree) {
  each([]<class T>(const Case<T>& op) {
    const auto compare = [&](const Problem<T>& problem) {
      SCOPED_TRACE(describe(problem));
      expect_levels_agree([&] { return run_both(op, problem); });
    };
    std::uint64_t seed = 40;
    for (const auto& [queries, keys] : edge_sizes(op)) {
      compare(make_problem(op, sizes(queries, keys, 8, 5), seed++));
      compare(make_problem(op, sizes(queries, keys, 3, 17), seed++));
    }
    for (Index width = 0; width <= 33; ++width) {
      compare(make_problem(op, sizes(19, 37, width, 33 - width), seed++));
    }
    for (const Index width : register_widths()) {
      compare(make_problem(op, sizes(35, 140, width, width), seed++));
    }
    compare(make_problem(op, sizes(70, 200, 128, 111), seed++));
    compare(make_problem(op, sizes(140, 600, 64, 64), seed++));
    compare(composed_problem(op));
    compare(packed_problem(op));
    for (const double size : {20.0, 88.0, 104.0, 1e4, 3e38}) {
      const auto value = [=](Index j) { return j % 3 == 0 ? size : j % 3 == 1 ? -size : 0; };
      const Problem<T> large = make_problem(op, sizes(40, 300, 1, 6), seed,
                                            {gaussian(3), first_column(value), gaussian(5)});
      expect_levels_agree([&] { return run(op, large); });
      if (size < 1e4) compare(large);  // gradients of the others may be NaN of any kind
    }
  });
}

TEST_P(Bits, RepeatedRunsAreBitwiseEqual) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = composed_problem(op);
    const Result<T> first = run(op, problem);
    const Tensor<T> out(problem.out_shape());
    for (const double before : {0.0, 1e30, -std::numeric_limits<double>::infinity()}) {
      out.fill(constant(before));
      op.forward(problem.inputs(), out.view(), AllSaved<T>{}, nullptr);  // without lse
      EXPECT_TRUE(same_bits(first.out, out.values(), problem.out_shape()));
    }
  });
}

TEST_P(Bits, ScalingValuesByAPowerOfTwoScalesTheOutput) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, sizes(70, 150, 6, 5));
    const Result<T> plain = run(op, problem);
    for (const int power : {-30, -1, 1, 40}) {
      const Problem<T> scaled = make_problem(op, problem.shape);
      scaled.v.fill([&](Index b, Index h, Index n, Index d) {
        return std::ldexp(problem.v(b, h, n, d), power);
      });
      Result<T> expected = plain;
      for (T& x : expected.out) x = std::ldexp(x, power);
      EXPECT_TRUE(same_bits(expected, run(op, scaled))) << power;
    }
  });
}

TEST_P(SoftmaxBits, PowersOfTwoMoveBetweenQueriesAndKeys) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, sizes(70, 150, 6, 5));
    const Result<T> plain = run(op, problem);
    for (const int power : {-20, -1, 1, 30}) {
      const Problem<T> moved = make_problem(op, problem.shape);
      moved.q.fill([&](Index b, Index h, Index n, Index d) {
        return std::ldexp(problem.q(b, h, n, d), power);
      });
      moved.k.fill([&](Index b, Index h, Index n, Index d) {
        return std::ldexp(problem.k(b, h, n, d), -power);
      });
      EXPECT_TRUE(same_bits(plain, run(op, moved))) << power;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Bits, conforming_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, SoftmaxBits, softmax_subjects(), test_name);

}  // namespace fovea_test::attention_conformance_bits
