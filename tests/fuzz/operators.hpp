// SPDX-License-Identifier: MIT
/// \file
/// One trial of any operator: its results against the oracle, and the same numbers from other
/// places, by other threads, with poison where nothing may be read. What is wrong is said by
/// GoogleTest's expectations.
#pragma once

#include "attention/gradients.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

template <class T>
void try_operator_in(Bytes& bytes) {
  const Case<T> op = drawn_case<T>(bytes);
  const Problem<T> problem = drawn_problem(bytes, op);
  const AtLevel at(drawn_level(bytes));
  SCOPED_TRACE(op.name + " " + scalar_name<T>() + ": " + describe(problem));
  const bool backward = bytes.once_in(2);

  const Layout of_q = drawn_input_layout(bytes);
  const Layout of_k = drawn_input_layout(bytes);
  const Layout of_v = drawn_input_layout(bytes);
  const Problem<T> elsewhere = problem.in(of_q, of_k, of_v, drawn_input_layout(bytes));
  if (!op.is_square) poison_rows<T>(bytes, elsewhere.key_lengths, {&elsewhere.k, &elsewhere.v});
  const Layout of_out = drawn_layout(bytes);
  AnyExecutor executor = drawn_executor(bytes);

  const Result<T> plain = run(op, problem);
  const Expected<T> expected = op.oracle(problem.inputs());
  EXPECT_TRUE(within_ratio(plain.out, expected.out, kOutBound, {op.name + " drawn", "out"}));
  if (op.is_softmax) {
    EXPECT_TRUE(within_ratio(plain.lse, expected.lse, kLseBound, {op.name + " drawn", "lse"}))
        << "(lse)";
  }
  EXPECT_TRUE(same_bits(plain, run(op, elsewhere, &executor, of_out)));
  if (!backward) return;
  const Tensor<T> d_out = make_d_out(problem);
  const Gradients<T> grads = run_backward(op, problem, d_out);
  expect_within(op, grads, op.grad_oracle(problem.inputs(), d_out.view()), " drawn");
  EXPECT_TRUE(same_bits(
      grads, run_backward(op, elsewhere, d_out.in(drawn_input_layout(bytes)), &executor, of_out)));
}

inline void try_operator(std::span<const std::uint8_t> data) {
  Bytes bytes(data);
  if (bytes.once_in(2)) {
    try_operator_in<OtherScalar>(bytes);
  } else {
    try_operator_in<float>(bytes);
  }
}

}  // namespace fovea_test
