// SPDX-License-Identifier: MIT
/// \file
/// A weight with its gradient and name, and how weights are initialised. They are drawn from a
/// counter-based generator, so that a seed gives the same weights on every machine.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/attention/linear/random_projection.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/layers/activation.hpp"

FOVEA_NAMESPACE_BEGIN

/// A matrix of weights, or a row of biases, with the gradient of the loss with respect to it.
/// Backward passes add to the gradient. It is allocated by the first of them or `zero_gradients`,
/// so a model used only for inference has none.
template <class T>
struct Parameter {
  std::string name;  ///< its name in its layer, such as "linear.weight"
  /// [inputs, outputs], so that y = x W (most frameworks store the transpose); a row [1, outputs];
  /// or [tokens, channels].
  RowMatrix<T> value;
  RowMatrix<T> gradient;  ///< the gradient, in the shape of value; empty means 0

  /// An empty parameter.
  Parameter() = default;
  /// A parameter whose values are all `fill`.
  Parameter(std::string called, Index rows, Index columns, T fill = T(0))
      : name(std::move(called)), value(rows, columns) {
    detail::request_large_pages(value.data(), static_cast<std::size_t>(value.size()) * sizeof(T));
    value.setConstant(fill);
  }

  /// The gradient to accumulate into, in the shape of value. \throws std::bad_alloc
  RowMatrix<T>& gradient_sum() {
    if (gradient.size() != value.size()) gradient.setZero(value.rows(), value.cols());
    return gradient;
  }
};

/// The distribution of initial weights of a matrix [inputs, outputs]: uniform in [-a, a].
enum class Initialisation {
  glorot,  ///< a = sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)
  he,      ///< a = sqrt(6 / inputs) (He et al. 2015), if an activation halves the variance
};

/// Draws initial weights. Those of the n-th parameter are `uniform_draw<double>(seed, n, 0, row,
/// column)`, scaled and rounded to T, so float and double agree.
class Initialiser {
 public:
  /// Starts at parameter 0 of this seed.
  explicit Initialiser(std::uint64_t seed) : seed_(seed) {}

  /// Leaves weights 0, for a model that is loaded from a file.
  static Initialiser zeros() {
    Initialiser none(0);
    none.draws_ = false;
    return none;
  }

  /// Draws the values of the next parameter, uniformly in [-bound, bound].
  template <class T>
  void uniform(Parameter<T>& parameter, double bound) {
    RowMatrix<T>& w = parameter.value;
    if (!draws_) return;
    for (Index i = 0; i < w.rows(); ++i) {
      for (Index j = 0; j < w.cols(); ++j) {
        const double draw = uniform_draw<double>(seed_, next_, 0, i, j);
        w(i, j) = static_cast<T>((rounded(2 * draw) - 1) * bound);
      }
    }
    ++next_;
  }

  /// Draws the values of the next parameter, a matrix or some columns of one.
  /// \param inputs, outputs of the map that this matrix, or these columns, represent
  template <class T>
  void draw(Parameter<T>& parameter, Initialisation how, Index inputs, Index outputs) {
    const Index fans = how == Initialisation::glorot ? inputs + outputs : inputs;
    uniform(parameter, std::sqrt(6 / static_cast<double>(fans)));
  }

  /// Draws the next parameter as a projection of random features (draw_projection).
  template <class T>
  void features(Parameter<T>& projection) {
    if (!draws_) return;
    // A different seed for each parameter, as far apart as those of different layers.
    const View<T> values(projection.value.data(),
                         {1, 1, projection.value.rows(), projection.value.cols()});
    draw_projection(seed_ + 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(next_ + 1), values);
    ++next_;
  }

  /// The seed, also used by operators' own draws in layers built with this.
  std::uint64_t seed() const { return seed_; }

 private:
  std::uint64_t seed_;
  Index next_ = 0;
  bool draws_ = true;
};

/// Calls f(parameter) for each parameter of a layer, in the fixed order of its `visit`.
template <class Layer, class F>
void for_each_parameter(Layer& layer, F&& f) {
  layer.visit(f);
}

/// Sets every gradient to 0, as required before each step's backward passes.
template <class Layer>
void zero_gradients(Layer& layer) {
  layer.visit([](auto& parameter) { parameter.gradient_sum().setZero(); });
}

/// The number of trainable values of a layer.
template <class Layer>
Index parameter_count(Layer& layer) {
  Index count = 0;
  layer.visit([&](auto& parameter) { count += parameter.value.size(); });
  return count;
}

FOVEA_NAMESPACE_END
