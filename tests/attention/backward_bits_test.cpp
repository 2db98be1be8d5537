// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Gradients of every operator: the same bits for any threads, batch, heads, strides, storage and
/// level, and whichever of them are requested.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "support/same_everywhere.hpp"

namespace fovea_test::attention_backward_bits {

class GradientBits : public Conformance {};

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
Problem<T> composed_problem(const Case<T>& op, Index queries = 150, Index keys = 140) {
  Problem<T> problem = make_problem(op, {2, 4, 2, queries, keys, 5, 9}, 21);
  problem.key_lengths = {keys, keys / 2};
  return with_large_rows(std::move(problem));
}

TEST_P(GradientBits, ThreadsAndSchedulesDoNotChangeBitsOfGradients) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const Problem<T>& problem :
           {composed_problem(op, 200, 180), make_problem(op, sizes(600, 520, 3, 4))}) {
        expect_same_bits_on_executors(
            2, [&](AnyExecutor* executor) { return run_backward(op, problem, executor); });
      }
    });
  });
}

/// The gradients of a head's q, k, v and beta are those of the head alone. (Those of bias, sink and
/// blend logits are sums over what is broadcast.)
TEST_P(GradientBits, BatchAndHeadsDoNotChangeBitsOfGradients) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      Problem<T> problem = with_large_rows(make_problem(op, {2, 3, 3, 100, 140, 5, 7}, 22));
      problem.key_lengths = {140, 90};
      const Tensor<T> d_out = make_d_out(problem);
      const Gradients<T> all = run_backward(op, problem, d_out);
      for (Index b = 0; b < 2; ++b) {
        for (Index h = 0; h < 3; ++h) {
          if (op.drops() && b + h > 0) continue;  // its draws are those of its place
          if (op.by_head && h > 0) continue;
          const Index length[] = {problem.keys_of_batch(b)};
          const View<const T> d = cut(cut(d_out.view(), 0, b, 1), 1, h, 1);
          const Gradients<T> alone = run_backward(op, head_of(problem.inputs(), b, h, length), d);
          const auto expect_same = [&](const T* rows, const std::vector<T>& of_head) {
            EXPECT_TRUE(same_bits(rows, of_head.data(), of_head.size(),
                                  {1, 1, 1, static_cast<Index>(of_head.size())}))
                << b << " " << h;
          };
          expect_same(all.q_row(b, h, 0), alone.q);
          expect_same(all.k_row(b, h, 0), alone.k);
          expect_same(all.v_row(b, h, 0), alone.v);
          if (op.extras.beta) expect_same(&all.beta[as_size((b * 3 + h) * 140)], alone.beta);
        }
      }
    });
  });
}

TEST_P(GradientBits, StridesDoNotChangeBitsOfGradients) {
  each([]<class T>(const Case<T>& op) {
    const std::vector<std::array<std::size_t, 4>> orders = all_axis_orders();
    const Problem<T> problem = composed_problem(op, 37, 75);
    const Tensor<T> d_out = make_d_out(problem);
    at_each_level([&] {
      const Gradients<T> dense = run_backward(op, problem, d_out);
      for (std::size_t i = 0; i < orders.size(); ++i) {
        const auto layout = [&](std::size_t n, Index offset, Index innermost, Index gap) {
          return Layout{orders[(i + n) % orders.size()], offset, innermost, gap, {}, {}, {}};
        };
        const auto odd = static_cast<Index>(i % 16);
        const Problem<T> strided =
            problem.in(layout(0, odd, 1, 3), layout(7, 1, 1 + odd % 3, odd % 2),
                       layout(13, 15 - odd, 1 + odd % 2, 5), layout(11, odd, 1 + odd % 2, 4));
        const Layout grads = layout(19, odd + 1, 1 + (odd + 1) % 3, odd % 4);
        const Tensor<T> d = d_out.in(layout(3, odd, 1 + odd % 3, 2));
        EXPECT_TRUE(same_bits(dense, run_backward(op, strided, d, nullptr, grads))) << i;
      }
    });
  });
}

/// The view with this stride wherever there is one index.
template <class U>
View<U> with_idle_strides(const View<U>& x, Index stride) {
  if (x.empty()) return x;
  Shape strides = x.strides();
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.shape()[d] == 1) strides[d] = stride;
  }
  return {x.data(), x.shape(), strides};
}

/// The stride of a dimension of extent 1 is never used. With sanitizers the test checks more:
/// products with such a stride would overflow.
TEST_P(GradientBits, StridesOfOneIndexDoNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : {std::array<Index, 2>{1, 1}, {1, 70}, {70, 1}}) {
      for (const Index width : {1, 5}) {
        const Problem<T> problem = make_problem(op, sizes(queries, keys, width, width));
        const Tensor<T> d_out = make_d_out(problem);
        const Gradients<T> dense = run_backward(op, problem, d_out);
        for (const Index stride :
             {std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max()}) {
          const auto idle = [=](const auto& x) { return with_idle_strides(x, stride); };
          AllInputs<T> in = problem.inputs();
          in.q = idle(in.q);
          in.k = idle(in.k);
          in.v = idle(in.v);
          in.bias = idle(in.bias);
          in.mask = idle(in.mask);
          in.beta = idle(in.beta);
          in.near_logits = idle(in.near_logits);
          in.far_logits = idle(in.far_logits);
          in.projection = idle(in.projection);
          const Tensor<T> out(problem.out_shape());
          const Tensor<T> lse(op.is_softmax ? problem.row_shape() : Shape{});
          const AllSaved<T> saved = op.is_softmax ? AllSaved<T>{idle(lse.view())} : AllSaved<T>{};
          op.forward(in, idle(out.view()), saved, nullptr);
          GradStorage<T> to(in, {});
          AllGrads<T> grads = to.grads(in, {});
          for (View<T>* x : {&grads.q, &grads.k, &grads.v, &grads.bias, &grads.beta,
                             &grads.near_logits, &grads.far_logits, &grads.projection}) {
            *x = idle(*x);
          }
          op.backward(in, idle(View<const T>(out.view())), saved, idle(View<const T>(d_out.view())),
                      grads, nullptr);
          EXPECT_TRUE(same_bits(run(op, problem).out, out.values()));
          EXPECT_TRUE(same_bits(dense, to.values(dense.shape))) << describe(problem);
        }
      }
    }
  });
}

/// Columns apart, one tensor at a time: other code, the same bits.
TEST_P(GradientBits, ColumnStridesDoNotChangeBitsOfGradients) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const Index width : {4, 16, 33, 64}) {
        const Problem<T> dense = make_problem(op, sizes(35, 140, width, width));
        const Tensor<T> d_out = make_d_out(dense);
        const Gradients<T> expected = run_backward(op, dense, d_out);
        for (std::size_t apart = 0; apart < 6; ++apart) {
          std::array<Layout, 6> layouts;
          layouts[apart].innermost = 3;
          const Problem<T> strided = dense.in(layouts[0], layouts[1], layouts[2], layouts[3]);
          const Gradients<T> got =
              run_backward(op, strided, d_out.in(layouts[4]), nullptr, layouts[5]);
          EXPECT_TRUE(same_bits(expected, got)) << width << " " << apart;
        }
      }
    });
  });
}

/// Inputs and d_out that are broadcast or run backwards.
TEST_P(GradientBits, BroadcastAndReversedInputsDoNotChangeBitsOfGradients) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (int mask = 1; mask < 16; mask += 2) {
        Layout thin;
        Layout reversed;
        for (std::size_t d = 0; d < 4; ++d) {
          thin.broadcast[d] = (mask >> d & 1) != 0;
          reversed.reversed[d] = (mask >> d & 1) != 0;
        }
        const Problem<T> problem = make_problem(op, {2, 2, 2, 35, 70, 4, 3}, 31);
        Tensor<T> d_out = make_d_out(problem).in(thin);  // the last element is checked for its axis
        const Tensor<T> whole = d_out.in(Layout{});
        const Problem<T> backwards = problem.in(reversed, reversed, reversed, reversed);
        const Gradients<T> expected = run_backward(op, problem, whole);
        EXPECT_TRUE(same_bits(expected, run_backward(op, problem, d_out))) << mask;
        EXPECT_TRUE(same_bits(expected, run_backward(op, backwards, whole.in(reversed)))) << mask;
      }
    });
  });
}

/// Every tensor touches a page that cannot be read: a read beyond it is a crash.
TEST_P(GradientBits, BackwardReadsAndWritesOnlyItsTensors) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const Guard guard : {Guard::before, Guard::behind}) {
        for (const Index width : {1, 3, 4, 8, 15, 16, 17, 32, 33}) {
          for (const Index innermost : {1, 2}) {
            Layout layout;
            layout.innermost = innermost;
            layout.guard = guard;
            const Problem<T> plain = make_problem(op, sizes(19, 71, width, 34 - width));
            const Tensor<T> d_out = make_d_out(plain);
            const Problem<T> guarded = plain.in(layout, layout, layout, layout);
            EXPECT_TRUE(same_bits(run_backward(op, plain, d_out),
                                  run_backward(op, guarded, d_out.in(layout), nullptr, layout)))
                << describe(plain);
          }
        }
      }
    });
  });
}

TEST_P(GradientBits, LevelsWithFusedMultiplyAddAgreeInGradients) {
  each([]<class T>(const Case<T>& op) {
    const auto compare = [&](const Problem<T>& problem) {
      SCOPED_TRACE(describe(problem));
      expect_levels_agree([&] { return run_backward(op, problem); });
    };
    std::uint64_t seed = 40;
    for (const Index keys : {1, 2, 17, 63, 64, 65, 128, 129, 257}) {
      for (const Index queries : {1, 7, 63, 64, 65, 131}) {
        compare(make_problem(op, sizes(queries, keys, 8, 5), seed++));
      }
    }
    for (Index width = 0; width <= 33; ++width) {
      compare(make_problem(op, sizes(19, 37, width, 33 - width), seed++));
    }
    compare(make_problem(op, sizes(140, 600, 64, 64), seed++));
    compare(make_problem(op, sizes(515, 70, 128, 111), seed++));
    compare(composed_problem(op));
    for (const double size : {20.0, 88.0, 104.0}) {
      const auto value = [=](Index j) { return j % 3 == 0 ? size : j % 3 == 1 ? -size : 0; };
      compare(make_problem(op, sizes(40, 300, 1, 6), seed,
                           {gaussian(3), first_column(value), gaussian(5)}));
    }
  });
}

/// Gradients that are not requested have no effect, and repeated calls give the same bits.
TEST_P(GradientBits, GradientsDoNotDependOnWhichAreRequested) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> problem = composed_problem(op);
      const Tensor<T> d_out = make_d_out(problem);
      const Gradients<T> all = run_backward(op, problem, d_out);
      for (int set = 0; set < 32; ++set) {
        const auto in_set = [=](int bit) { return (set >> bit & 1) != 0; };
        const Wanted some{in_set(0), in_set(1), in_set(2), in_set(3),
                          in_set(4), in_set(3), in_set(4), in_set(3) != in_set(4),
                          in_set(3)};
        const Gradients<T> got = run_backward(op, problem, d_out, nullptr, {}, some);
        EXPECT_TRUE(same_bits(all, got, some)) << set;
      }
    });
  });
}

/// Gradients are linear in d_out; a power of two is exact.
TEST_P(GradientBits, ScalingDOutByAPowerOfTwoScalesTheGradients) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> problem = make_problem(op, sizes(70, 150, 6, 5));
      const Tensor<T> d_out = make_d_out(problem);
      for (const int power : {-10, -1, 1, 20}) {
        Gradients<T> expected = run_backward(op, problem, d_out);
        for_each_gradient(
            [&](const char* /*name*/, std::vector<T>& part) {
              for (T& x : part) x = std::ldexp(x, power);
            },
            expected);
        const Tensor<T> scaled(problem.out_shape());
        scaled.fill([&](Index b, Index h, Index n, Index d) {
          return std::ldexp(d_out(b, h, n, d), power);
        });
        EXPECT_TRUE(same_bits(expected, run_backward(op, problem, scaled))) << power;
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, GradientBits, conforming_subjects(), test_name);

}  // namespace fovea_test::attention_backward_bits
