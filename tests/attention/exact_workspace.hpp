// SPDX-License-Identifier: MIT
/// \file
/// The heap that both passes of a call of operator_call.hpp take, against the sizes that they
/// state.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "attention/operator_call.hpp"
#include "fovea/core/arena.hpp"
#include "support/memory.hpp"

namespace fovea_test {

/// How often a pass may allocate, and how much less it may take than it states.
struct HeapLimits {
  std::ptrdiff_t forward_allocations;
  std::ptrdiff_t backward_allocations;
  Index spare = 1 << 30;
};

/// Both passes allocate workspace_bytes and a few small objects, and next to nothing in an arena.
template <class Op, class P>
void expect_exact_workspace(const Op& op, const P& p, const typename Op::Shape& shape,
                            const HeapLimits& limits) {
  using T = typename P::Scalar;
  constexpr Index small = 1024;
  const auto inputs = p.inputs();
  const WrittenTensors<Op, P> to(op, p);
  const auto saved = to.saved();
  const auto grads = to.grads();
  const auto expect = [&](Index stated, std::ptrdiff_t before, std::ptrdiff_t allocations) {
    const std::ptrdiff_t taken = heap().peak - before;
    EXPECT_LE(taken, stated + small);
    EXPECT_GE(taken, stated - limits.spare);
    EXPECT_LE(heap().allocations, allocations);
  };
  const Index forward = op.template workspace_bytes<T>(shape, 1);
  const Index backward = op.template backward_workspace_bytes<T>(shape, 1);
  std::ptrdiff_t before = heap().reset();
  op.forward(inputs, to.out().view(), saved);
  expect(forward, before, limits.forward_allocations);
  before = heap().reset();
  op.backward(inputs, to.out().view(), saved, p.d_out.view(), grads);
  expect(backward, before, limits.backward_allocations);
  fovea::Arena arena(std::max(forward, backward));
  before = heap().reset();
  op.forward(inputs, to.out().view(), saved, arena.on());
  op.backward(inputs, to.out().view(), saved, p.d_out.view(), grads, arena.on());
  EXPECT_LE(heap().peak - before, small);
}

}  // namespace fovea_test
