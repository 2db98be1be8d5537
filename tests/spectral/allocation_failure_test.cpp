// SPDX-License-Identifier: MIT
// fovea_test(HEAP NEEDS fftw)
/// \file
/// Failing allocations in the Fourier cross, including plans, as in
/// tests/attention/allocation_failure_test.cpp.
#include <gtest/gtest.h>

#include "fovea/spectral/plan_cache.hpp"
#include "spectral/cross_case.hpp"
#include "support/failing_allocations.hpp"

namespace fovea_test::spectral_allocation_failure {

TEST(HiddenStateCross, FailedAllocations) {
  const CrossCase<float> problem({2, 1, 70, 40}, {70, 33});
  const auto expected = problem.run();
  const HiddenStateCross op;
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    const Tensor<float> out(problem.f1.shape());
    const Tensor<float> d_f1(problem.f1.shape());
    const Tensor<float> d_f2(problem.f1.shape());
    const auto reset = [&] {
      fovea::fft_plans<float>().clear();
      for (const Tensor<float>* x : {&out, &d_f1, &d_f2}) x->fill(constant(kUntouched));
    };
    const auto untouched = [&] {
      for (const Tensor<float>* x : {&out, &d_f1, &d_f2}) EXPECT_TRUE(is_untouched(x->values()));
    };
    const auto on = [&](const auto& call) {
      executor == nullptr ? call(fovea::Serial{}) : call(*executor);
    };
    fail_each_allocation(
        reset, [&] { on([&](auto&& e) { op.forward(problem.inputs(), out.view(), e); }); },
        untouched, [&] { EXPECT_TRUE(same_bits(expected.out, out.values())); });
    fail_each_allocation(
        reset,
        [&] {
          on([&](auto&& e) {
            op.backward(problem.inputs(), problem.g.view(), {d_f1.view(), d_f2.view()}, e);
          });
        },
        untouched,
        [&] {
          EXPECT_TRUE(same_bits(expected.d_f1, d_f1.values()));
          EXPECT_TRUE(same_bits(expected.d_f2, d_f2.values()));
        });
  });
}

}  // namespace fovea_test::spectral_allocation_failure
