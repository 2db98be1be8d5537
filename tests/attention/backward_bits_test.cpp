// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Gradients of every operator have the same bits whichever of them are requested, for any strides
/// of one index, and scaled with d_out. (For threads, strides, levels and so on, see
/// conformance_bits_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/gradients.hpp"

namespace fovea_test::attention_backward_bits {

class GradientBits : public Conformance {};

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

/// Gradients that are not requested have no effect, and repeated calls give the same bits.
TEST_P(GradientBits, GradientsDoNotDependOnWhichAreRequested) {
  each_at_levels([]<class T>(const Case<T>& op) {
    Problem<T> problem = make_problem(op, {2, 4, 2, 150, 140, 5, 9}, 21);
    problem.key_lengths = {140, 70};
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
}

/// Gradients are linear in d_out; a power of two is exact.
TEST_P(GradientBits, ScalingDOutByAPowerOfTwoScalesTheGradients) {
  each_at_levels([]<class T>(const Case<T>& op) {
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
      scaled.fill(
          [&](Index b, Index h, Index n, Index d) { return std::ldexp(d_out(b, h, n, d), power); });
      EXPECT_TRUE(same_bits(expected, run_backward(op, problem, scaled))) << power;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, GradientBits, conforming_subjects(), test_name);

}  // namespace fovea_test::attention_backward_bits
