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

TEST_P(Bits, ThreadsAndSchedulesDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Problem<T>& problem :
         {composed_problem(op, 300, 200), make_problem(op, sizes(600, 520, 3, 4))}) {
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
    for (const Index key_heads : {2, 4}) {
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

TEST_P(Bits, GroupedHeadsEqualRepeatedHeads) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Index key_heads : {1, 2, 3, 6}) {
      const Problem<T> grouped = make_problem(op, {2, 6, key_heads, 40, 50, 5, 4});
      const Problem<T> repeated = make_problem(op, {2, 6, 6, 40, 50, 5, 4});
      const Index group = 6 / key_heads;
      const auto repeat = [=](const Tensor<T>& x) {
        return [&x, group](Index b, Index h, Index n, Index d) { return x(b, h / group, n, d); };
      };
      repeated.k.fill(repeat(grouped.k));
      repeated.v.fill(repeat(grouped.v));
      if (grouped.beta) repeated.beta->fill(repeat(*grouped.beta));
      EXPECT_TRUE(same_bits(run(op, grouped), run(op, repeated)));
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

TEST_P(Bits, AxisOrdersDoNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    const std::vector<std::array<std::size_t, 4>> orders = all_axis_orders();
    const Problem<T> problem = composed_problem(op, 37, 141);
    const Tensor<T> d_out = make_d_out(problem);
    at_each_level([&] {
      const BothResults<T> dense = run_both(op, problem, d_out);
      for (std::size_t i = 0; i < orders.size(); ++i) {
        const auto layout = [&](std::size_t n, Index offset, Index innermost, Index gap) {
          return Layout{orders[(i + n) % orders.size()], offset, innermost, gap, {}, {}, {}};
        };
        const auto odd = static_cast<Index>(i % 16);
        const Problem<T> strided =
            problem.in(layout(0, odd, 1, 3), layout(7, 1, 1 + odd % 3, odd % 2),
                       layout(13, 15 - odd, 1 + odd % 2, 5), layout(11, odd, 1 + odd % 2, 4));
        const Layout out = layout(19, odd + 1, 1 + (odd + 1) % 3, odd % 4);
        const Tensor<T> d = d_out.in(layout(3, odd, 1 + odd % 3, 2));
        EXPECT_TRUE(same_bits(dense, run_both(op, strided, d, nullptr, out))) << i;
        const Problem<T> alike = problem.in(layout(5, 2, 2, 1), layout(0, odd, 1, 2),
                                            layout(0, odd, 1, 2), layout(0, 1, 1, 0));
        EXPECT_TRUE(same_bits(dense.forward, run(op, alike, nullptr, layout(0, odd, 1, 1)))) << i;
      }
    });
  });
}

/// Columns apart, one tensor at a time: other code, the same bits.
TEST_P(Bits, ColumnStridesDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Index width : register_widths()) {
      const Problem<T> dense = make_problem(op, sizes(35, 140, width, width));
      const Tensor<T> d_out = make_d_out(dense);
      const BothResults<T> expected = run_both(op, dense, d_out);
      for (std::size_t apart = 0; apart < 7; ++apart) {
        std::array<Layout, 6> layouts;
        if (apart < 6) layouts[apart].innermost = 3;
        if (apart == 6) layouts[1].order = {0, 1, 3, 2};
        const Problem<T> strided = dense.in(layouts[0], layouts[1], layouts[2], layouts[3]);
        const Tensor<T> d = d_out.in(layouts[4]);
        EXPECT_TRUE(same_bits(expected, run_both(op, strided, d, nullptr, layouts[5])))
            << width << " " << apart;
      }
    }
  });
}

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
    }
  });
}

/// Inputs and d_out; it may be broadcast, too.
TEST_P(Bits, NegativeStridesOfInputsDoNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    const Problem<T> problem = composed_problem(op, 37, 141);
    at_each_level([&] {
      for (int mask = 1; mask < 16; ++mask) {
        Layout reversed{{0, 1, 2, 3}, 3, 1, 2, {}, {}, {}};
        Layout thin;
        for (std::size_t d = 0; d < 4; ++d) {
          reversed.reversed[d] = thin.broadcast[d] = (mask >> d & 1) != 0;
        }
        const Tensor<T> d_out = make_d_out(problem).in(thin);
        const Tensor<T> whole = d_out.in({});  // the last element that was written is checked
        const BothResults<T> expected = run_both(op, problem, whole);
        EXPECT_TRUE(same_bits(expected, run_both(op, problem, d_out))) << mask;
        const Problem<T> backwards = problem.in(reversed, reversed, reversed, reversed);
        EXPECT_TRUE(same_bits(expected, run_both(op, backwards, whole.in(reversed)))) << mask;
      }
    });
  });
}

/// Every tensor touches a page that cannot be read: a read beyond it is a crash.
template <class T>
void expect_same_between_guards(const Case<T>& op, const AttentionShape& shape, Guard guard,
                                Index innermost) {
  Layout layout;
  layout.innermost = innermost;
  layout.guard = guard;
  const Problem<T> plain = make_problem(op, shape);
  const Problem<T> guarded = plain.in(layout, layout, layout, layout);
  const Tensor<T> d_out = make_d_out(plain);
  EXPECT_TRUE(same_bits(run_both(op, plain, d_out),
                        run_both(op, guarded, d_out.in(layout), nullptr, layout)))
      << describe(plain);
}

TEST_P(Bits, ReadsAndWritesOnlyItsTensors) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Guard guard : {Guard::before, Guard::behind}) {
      for (const Index width : {1, 3, 4, 8, 15, 16, 17, 32, 33}) {
        for (const Index innermost : {1, 2}) {
          expect_same_between_guards(op, sizes(19, 131, width, 34 - width), guard, innermost);
        }
      }
      for (const Index width : register_widths()) {
        expect_same_between_guards(op, sizes(19, 33, width, width), guard, 1);
      }
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
