// SPDX-License-Identifier: MIT
/// \file
/// A weight with its gradient and its name, and how weights are drawn: from the counter-based
/// generator, so that a seed gives the same weights on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/core/philox.hpp"
#include "fovea/layers/activation.hpp"

FOVEA_NAMESPACE_BEGIN

/// A weight matrix, or a row of biases, and the gradient of the loss with respect to it. Backward
/// passes add to the gradient.
template <class T>
struct Parameter {
  std::string name;
  RowMatrix<T> value;     ///< [inputs, outputs], a row [1, outputs], or [tokens, channels]
  RowMatrix<T> gradient;  ///< the shape of value

  Parameter() = default;
  /// All `fill`, with gradient 0.
  Parameter(std::string called, Index rows, Index columns, T fill = 0)
      : name(std::move(called)),
        value(RowMatrix<T>::Constant(rows, columns, fill)),
        gradient(RowMatrix<T>::Zero(rows, columns)) {}
};

/// How the weights of a matrix [inputs, outputs] are drawn: uniform in [-a, a].
enum class Initialisation {
  glorot,  ///< a = sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)
  he,      ///< a = sqrt(6 / inputs) (He et al. 2015), before a map that halves the variance
};

/// Draws the weights of one parameter after the other. Parameter number n of a seed has the draws
/// `uniform_draw<double>(seed, n, 0, row, column)`, rounded to T: float and double agree.
class Initialiser {
 public:
  explicit Initialiser(std::uint64_t seed) : seed_(seed) {}

  /// Uniform in [-bound, bound].
  template <class T>
  void uniform(Parameter<T>& parameter, double bound) {
    RowMatrix<T>& w = parameter.value;
    for (Index i = 0; i < w.rows(); ++i) {
      for (Index j = 0; j < w.cols(); ++j) {
        const double draw = uniform_draw<double>(seed_, next_, 0, i, j);
        w(i, j) = static_cast<T>((2 * draw - 1) * bound);
      }
    }
    ++next_;
  }

  /// \param inputs, outputs of the map that the matrix is, or is some columns of
  template <class T>
  void draw(Parameter<T>& parameter, Initialisation how, Index inputs, Index outputs) {
    const Index fans = how == Initialisation::glorot ? inputs + outputs : inputs;
    uniform(parameter, std::sqrt(6 / static_cast<double>(fans)));
  }

  /// Of the draws that operators make in layers built with it.
  std::uint64_t seed() const { return seed_; }

 private:
  std::uint64_t seed_;
  Index next_ = 0;
};

/// Calls f(parameter) for each parameter of a layer, in the order of its `visit`, which is fixed.
template <class Layer, class F>
void for_each_parameter(Layer& layer, F&& f) {
  layer.visit(f);
}

/// Sets every gradient to 0, as before each step.
template <class Layer>
void zero_gradients(Layer& layer) {
  layer.visit([](auto& parameter) { parameter.gradient.setZero(); });
}

/// How many numbers a layer learns.
template <class Layer>
Index parameter_count(Layer& layer) {
  Index count = 0;
  layer.visit([&](auto& parameter) { count += parameter.value.size(); });
  return count;
}

FOVEA_NAMESPACE_END
