// SPDX-License-Identifier: MIT
/// \file
/// Helpers for tests of layers: data, gradients compared with central differences, and bits for any
/// number of threads, even with little work.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "fovea/core/thread_pool.hpp"
#include "fovea/layers/parameter.hpp"
#include "support/central_differences.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using Activations = Tensor<double>;

inline Activations drawn(const Shape& shape, std::uint64_t seed, double deviation = 1) {
  Activations x(shape);
  x.fill(gaussian(seed, deviation));
  return x;
}

inline Activations filled(const Shape& shape, double value) {
  Activations x(shape);
  x.fill(constant(value));
  return x;
}

/// Draws every parameter of a layer anew, so that no bias is 0 and no scale 1.
template <class Layer>
void draw_parameters(Layer& layer, std::uint64_t seed, double deviation = 0.5) {
  layer.visit([&]<class T>(fovea::Parameter<T>& p) {
    ++seed;
    for (Index i = 0; i < p.value.rows(); ++i) {
      for (Index j = 0; j < p.value.cols(); ++j) {
        p.value(i, j) += static_cast<T>(gaussian(seed, deviation)(0, 0, i, j));
      }
    }
  });
}

/// The gradients of all parameters, concatenated.
template <class Layer>
std::vector<double> gradients_of(Layer& layer) {
  std::vector<double> all;
  layer.visit([&](fovea::Parameter<double>& p) {
    all.insert(all.end(), p.gradient.data(), p.gradient.data() + p.gradient.size());
  });
  return all;
}

/// The concatenation of lists.
inline std::vector<double> joined(const std::vector<std::vector<double>>& lists) {
  std::vector<double> all;
  for (const std::vector<double>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// |got - expected| <= bound (1 + |expected|) for every element, and not all of them 0.
inline testing::AssertionResult close_to(const std::vector<double>& got,
                                         const std::vector<double>& expected, double bound) {
  if (got.size() != expected.size()) {
    return testing::AssertionFailure() << got.size() << " elements, expected " << expected.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - expected[i]) <= bound * (1 + std::abs(expected[i]))) continue;
    return testing::AssertionFailure() << "element " << i << " of " << got.size() << ": " << got[i]
                                       << ", expected " << expected[i];
  }
  return testing::AssertionSuccess();
}

/// Options of a gradient check: what to omit, and the step size.
struct DifferenceOptions {
  double step = 1e-5;
  double tolerance = 1e-7;
  /// Parameters whose name contains this have no gradient: it must stay as it was.
  std::string untrained = "-";
  /// The rows of x and y where threads are compared, if not those of the differences. More than 192
  /// are more than one task.
  Index rows_on_threads = 0;
};

/// Holds the gradients of <y, d_y> by every element of x and every weight to central differences.
/// That of x must be written whatever was there, those of weights added to.
/// \param forward () -> y, flat   \param backward (d_y) after forward: to d_x
template <class Layer, class Forward, class Backward>
void expect_gradients(Layer& layer, const Activations& x, const Activations& d_x,
                      const Activations& d_y, Forward&& forward, Backward&& backward,
                      const DifferenceOptions& options = {}) {
  const std::vector<double> weights = d_y.values();
  const auto loss = [&] {
    const std::vector<double> y = forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  const auto difference = [&](double& at) {
    const double before = at;
    at = before + options.step;
    const double above = loss();
    at = before - options.step;
    const double below = loss();
    at = before;
    return (above - below) / (2 * options.step);
  };
  constexpr double already = 0.625;
  layer.visit([&](fovea::Parameter<double>& p) { p.gradient_sum().setConstant(already); });
  d_x.fill(constant(std::nan("")));
  forward();
  backward();
  double largest = 0;
  const auto expect = [&](double& at, double gradient, const std::string& name) {
    const double expected = difference(at);
    ASSERT_TRUE(std::abs(gradient - expected) <= options.tolerance * (1 + std::abs(expected)))
        << name << ": " << gradient << ", difference " << expected;
    largest = std::max(largest, std::abs(expected));
  };
  for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
    expect(x(b, h, n, d), d_x(b, h, n, d), "x " + fovea::to_string(Shape{b, h, n, d}));
  });
  EXPECT_GT(largest, 1e-3);
  layer.visit([&](fovea::Parameter<double>& p) {
    if (p.name.find(options.untrained) != std::string::npos) {
      EXPECT_EQ((p.gradient.array() - already).abs().maxCoeff(), 0) << p.name;
      return;
    }
    largest = 0;
    for (Index i = 0; i < p.value.size(); ++i) {
      expect(p.value.data()[i], p.gradient.data()[i] - already,
             p.name + "[" + std::to_string(i) + "]");
    }
    EXPECT_GT(largest, 1e-4) << p.name << " changes nothing";
  });
}

/// y, d_x and every parameter's gradient of one forward and one backward pass.
template <class Layer, class Input, class E>
std::vector<double> everything(Layer& layer, const Shape& x_shape, const Shape& y_shape,
                               Input&& input, E&& executor) {
  const Activations x = drawn(x_shape, 21);
  const Activations d_x(x_shape);
  const Activations y(y_shape);
  const Activations d_y = drawn(y_shape, 22);
  typename Layer::Saved saved;
  fovea::zero_gradients(layer);
  layer.forward(input(x.view()), y.view(), saved, executor);
  layer.backward(input(x.view()), saved, d_y.view(), d_x.view(), executor);
  return joined({y.values(), d_x.values(), gradients_of(layer)});
}

/// Holds the gradient of <y, d_y> by every element of x to central differences, of which one must
/// be large. \param forward () -> y, flat
template <class Forward>
void expect_differences(const Activations& x, const Activations& gradient, const Activations& d_y,
                        const Forward& forward, double tolerance) {
  const std::vector<double> weights = d_y.values(), got = gradient.values();
  const auto loss = [&] {
    const std::vector<double> y = forward();
    return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
  };
  double largest = 0;
  for_each_difference(x, 1e-5, loss, [&](std::size_t n, double expected) {
    EXPECT_NEAR(got[n], expected, tolerance * (1 + std::abs(expected)));
    largest = std::max(largest, std::abs(expected));
  });
  EXPECT_GT(largest, 1e-3);
}

/// The same bits from one thread and from three, and from one pass without anything saved.
template <class Layer, class Input>
void expect_same_bits_for_threads(Layer& layer, const Shape& x_shape, const Shape& y_shape,
                                  Input&& input) {
  const auto serial = everything(layer, x_shape, y_shape, input, fovea::Serial{});
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  EXPECT_TRUE(same_bits(everything(layer, x_shape, y_shape, input, three), serial));
  const Activations x = drawn(x_shape, 21);
  const Activations y(y_shape);
  layer.forward(input(x.view()), y.view(), three);
  const std::vector<double> first(serial.begin(), serial.begin() + size_of(y_shape));
  EXPECT_TRUE(same_bits(y.values(), first));
}

/// The same for a layer of `Input`s: x alone or tokens; and the same bits for any threads.
/// \param input (x) -> Input
template <class Layer, class Input>
void expect_layer_gradients(Layer& layer, const Shape& x_shape, const Shape& y_shape, Input&& input,
                            const DifferenceOptions& options = {}) {
  const Activations x = drawn(x_shape, 11);
  const Activations d_x(x_shape);
  const Activations y(y_shape);
  const Activations d_y = drawn(y_shape, 12);
  typename Layer::Saved saved;
  expect_gradients(
      layer, x, d_x, d_y,
      [&] {
        layer.forward(input(x.view()), y.view(), saved);
        return y.values();
      },
      [&] { layer.backward(input(x.view()), saved, d_y.view(), d_x.view()); }, options);
  const auto on_threads = [&](Shape shape) {
    if (options.rows_on_threads > 0) shape[2] = options.rows_on_threads;
    return shape;
  };
  expect_same_bits_for_threads(layer, on_threads(x_shape), on_threads(y_shape), input);
}

/// For layers that look at x alone.
inline View<const double> alone(const View<const double>& x) { return x; }

}  // namespace fovea_test
