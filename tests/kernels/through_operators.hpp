// SPDX-License-Identifier: MIT
/// \file
/// What tests of kernels that operators call have in common.
#pragma once

#include <string>

#include "attention/gradients.hpp"
#include "support/same_everywhere.hpp"

namespace fovea_test {

/// Kernels are tested in both scalars in every suite.
using BothScalars = testing::Types<float, double>;

/// Both passes with the bits of other levels, and with those of tensors with strides between guard
/// pages.
template <class T>
void expect_same_elsewhere(const Case<T>& op, const Problem<T>& problem) {
  SCOPED_TRACE(op.name + ", " + describe(problem));
  expect_levels_agree([&] { return run_both(op, problem); });
  const Tensor<T> d_out = make_d_out(problem);
  for (const Layout& layout : {Layout{.innermost = 3, .gap = 1, .guard = Guard::behind},
                               Layout{.order = {0, 1, 3, 2}, .guard = Guard::before}}) {
    const Problem<T> elsewhere = problem.in(layout, layout, layout, layout);
    at_each_level([&] {
      EXPECT_TRUE(same_bits(run_both(op, problem, d_out),
                            run_both(op, elsewhere, d_out.in(layout), nullptr, layout)));
    });
  }
}

}  // namespace fovea_test
