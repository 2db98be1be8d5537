// SPDX-License-Identifier: MIT
/// \file
/// Central differences: the Jacobian of an output by every number that has a gradient.
#pragma once

#include <cmath>
#include <vector>

#include "attention/gradients.hpp"

namespace fovea_test {

/// The numbers of a problem that have a gradient, in the order of Gradients.
template <class T>
std::vector<T*> parameters(Problem<T>& problem) {
  std::vector<T*> all;
  const auto add = [&](const Tensor<T>& x) {
    for_each_index(x.shape(),
                   [&](Index b, Index h, Index n, Index d) { all.push_back(&x(b, h, n, d)); });
  };
  add(problem.q);
  add(problem.k);
  add(problem.v);
  if (problem.bias) add(*problem.bias);
  for (T& x : problem.sink) all.push_back(&x);
  if (problem.beta) add(*problem.beta);
  if (problem.near_logits) add(*problem.near_logits);
  if (problem.far_logits) add(*problem.far_logits);
  if (problem.projection) add(*problem.projection);
  return all;
}

/// The problem with data for differences. Where a denominator nearly vanishes its curvature would
/// drown them: maps that change sign get numbers that do not.
template <class T>
Problem<T> smooth(const Case<T>& op, Problem<T> problem) {
  if (!op.signed_weights) return problem;
  for (const Tensor<T>* x : {&problem.q, &problem.k}) {
    for_each_index(x->shape(), [&](Index b, Index h, Index n, Index d) {
      T& element = (*x)(b, h, n, d);
      element = std::abs(element) + T{0.25};
    });
  }
  return problem;
}

/// Gradients in the order of `parameters`.
template <class T>
std::vector<Wide<T>> flat(const Gradients<T>& grads) {
  std::vector<Wide<T>> all;
  for (const auto* part : {&grads.q, &grads.k, &grads.v, &grads.bias, &grads.sink, &grads.beta,
                           &grads.near_logits, &grads.far_logits, &grads.projection}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}
template <class T>
std::vector<Wide<T>> flat(const ExpectedGrads<T>& grads) {
  std::vector<Wide<T>> all;
  for (const auto* part : {&grads.q, &grads.k, &grads.v, &grads.bias, &grads.sink, &grads.beta,
                           &grads.near_logits, &grads.far_logits, &grads.projection}) {
    all.insert(all.end(), part->value.begin(), part->value.end());
  }
  return all;
}

/// Holds every derivative of every output to its central difference, within
/// tolerance (1 + |derivative|). \param forward its outputs, flat   \param backward from d_out,
/// flat   \param shape that of the outputs
template <class T, class Forward, class Backward>
void expect_jacobian(Problem<T>& problem, const Shape& shape, T step, double tolerance,
                     Forward&& forward, Backward&& backward) {
  using W = Wide<T>;
  const Tensor<T> d_out(shape);
  d_out.fill(constant(0));
  std::vector<std::vector<W>> derivatives;  // [output][parameter]
  for_each_index(shape, [&](Index b, Index h, Index n, Index d) {
    d_out(b, h, n, d) = 1;
    derivatives.push_back(backward(d_out));
    d_out(b, h, n, d) = 0;
  });
  const std::vector<T*> all = parameters(problem);
  for (std::size_t p = 0; p < all.size(); ++p) {
    const T before = *all[p];
    *all[p] = before + step;
    const auto above = forward();
    *all[p] = before - step;
    const auto below = forward();
    *all[p] = before;
    for (std::size_t o = 0; o < above.size(); ++o) {
      const W difference = (W{above[o]} - W{below[o]}) / (2 * W{step});
      const W derivative = derivatives[o][p];
      ASSERT_TRUE(std::abs(derivative - difference) <= tolerance * (1 + std::abs(difference)))
          << "output " << o << " by parameter " << p << " of " << all.size() << ": " << derivative
          << ", difference " << difference << "; " << describe(problem);
    }
  }
}

/// The same of what `forward` writes to out.
template <class T, class Forward, class Backward>
void expect_jacobian(Problem<T>& problem, T step, double tolerance, Forward&& forward,
                     Backward&& backward) {
  expect_jacobian(problem, problem.out_shape(), step, tolerance, forward, backward);
}

}  // namespace fovea_test
