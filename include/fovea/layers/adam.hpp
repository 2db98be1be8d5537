// SPDX-License-Identifier: MIT
/// \file
/// The optimiser Adam (Kingma and Ba 2015, algorithm 1), with the decoupled weight decay of AdamW
/// (Loshchilov and Hutter 2019) and a bound on the norm of the gradient.
#pragma once

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/parameter.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of Adam, which may be changed from step to step.
struct AdamOptions {
  double learning_rate = 1e-3;  ///< how far a step moves the weights, 0 or more; 0.001 by default
  double beta1 = 0.9;           ///< decay of the mean of the gradients, in [0, 1)
  double beta2 = 0.999;         ///< decay of the mean of their squares, in [0, 1)
  double epsilon = 1e-8;        ///< added to the root of the mean square, more than 0
  /// Each step takes learning_rate * weight_decay times each weight off that weight. Parameters
  /// that are one row (biases, and the scale and shift of a normalisation) are left out. 0 or more;
  /// by default nothing decays.
  double weight_decay = 0;
  /// If it is set, gradients whose norm over all parameters is larger are scaled down to this norm.
  /// It must be more than 0.
  std::optional<double> clip_norm = {};
};

/// Updates all parameters of a layer, which is anything that has `visit`. Step t computes for each
/// weight w with the gradient g
///
///     m = b1 m + (1 - b1) g
///     v = b2 v + (1 - b2) g^2
///     m' = m / (1 - b1^t),  v' = v / (1 - b2^t)
///     w = w - rate m' / (sqrt(v') + epsilon)
///
/// m and v are kept: two numbers for each weight. Steps have the same bits for any number of
/// threads.
template <class T>
class Adam {
 public:
  AdamOptions options;  ///< The options, which may be changed between steps.

  /// An optimiser that has taken no step.
  explicit Adam(const AdamOptions& chosen = {}) : options(chosen) {}

  /// The number of steps taken.
  Index steps() const { return steps_; }

  /// Goes on as after so many steps, for a state that `visit_state` has been given.
  /// \throws std::invalid_argument if it is negative
  void set_steps(Index steps) {
    if (steps < 0) refuse("Adam", "the number of steps", std::to_string(steps), "at least 0");
    steps_ = steps;
  }

  /// Calls `f(name, mean, square)` for each parameter, with m and v, which are 0 before the first
  /// step and may be changed. With `steps`, they are all that is kept from step to step.
  /// \throws std::invalid_argument if the parameters have other sizes than in the first step
  template <class Layer, class F>
  void visit_state(Layer& layer, F&& f) {
    std::vector<std::string> names;
    std::vector<Parameter<T>*> parameters;
    layer.visit([&](const std::string& name, Parameter<T>& parameter) {
      names.push_back(name);
      parameters.push_back(&parameter);
    });
    prepare(parameters);
    for (std::size_t p = 0; p < names.size(); ++p)
      f(names[p], moments_[p].mean, moments_[p].square);
  }

  /// Takes one step down the gradients, which stay as they are.
  /// \param layer the same one in each call
  /// \return the norm of the gradient over all parameters, before it is clipped
  /// \throws std::invalid_argument if options are out of range, or if the parameters have other
  /// sizes than in the first step; std::bad_alloc in the first step, which then was none
  template <class Layer, class E = Serial>
  double step(Layer& layer, E&& executor = {}) {
    check_options();
    std::vector<Parameter<T>*> parameters;
    layer.visit([&](Parameter<T>& parameter) {
      parameter.gradient_sum();
      parameters.push_back(&parameter);
    });
    prepare(parameters);
    const double norm = std::sqrt(sum_of_squares(parameters));
    const bool clips = options.clip_norm && norm > *options.clip_norm;
    ++steps_;
    const auto t = static_cast<double>(steps_);
    Step now{.share = clips ? *options.clip_norm / norm : 1,
             .unbias1 = 1 / (1 - std::pow(options.beta1, t)),
             .unbias2 = 1 / (1 - std::pow(options.beta2, t))};
    auto&& threads = as_executor(executor);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      Parameter<T>& parameter = *parameters[p];
      now.decay = parameter.value.rows() > 1 ? options.learning_rate * options.weight_decay : 0;
      detail::for_each_column_block(
          threads, parameter.value.size(), kWeightsPerTask, kProducts,
          [&](Index first, Index count) { move(parameter, moments_[p], now, first, count); });
    }
    return norm;
  }

 private:
  static constexpr Index kWeightsPerTask = 8192;
  /// Multiply-adds that take as long as one weight does.
  static constexpr double kProducts = 32;

  struct Moments {
    RowMatrix<T> mean;
    RowMatrix<T> square;
  };

  struct Step {
    double share;      ///< the factor by which clipping scales the gradient
    double unbias1;    ///< 1 / (1 - beta1^t)
    double unbias2;    ///< 1 / (1 - beta2^t)
    double decay = 0;  ///< the part that weight decay takes off
  };

  void check_options() const {
    const auto check_rate = [](const char* name, double beta) {
      if (!(beta >= 0 && beta < 1)) {
        refuse("Adam", name, to_string(beta), "at least 0 and less than 1");
      }
    };
    const auto check_step = [](const char* name, double size) {
      if (!(size >= 0 && std::isfinite(size))) {
        refuse("Adam", name, to_string(size), "a finite number of at least 0");
      }
    };
    check_step("learning_rate", options.learning_rate);
    check_step("weight_decay", options.weight_decay);
    check_rate("beta1", options.beta1);
    check_rate("beta2", options.beta2);
    if (!(options.epsilon > 0)) {
      refuse("Adam", "epsilon", to_string(options.epsilon), "more than 0");
    }
    if (options.clip_norm && !(*options.clip_norm > 0)) {
      refuse("Adam", "clip_norm", to_string(*options.clip_norm), "more than 0");
    }
  }

  void prepare(const std::vector<Parameter<T>*>& parameters) {
    if (moments_.empty()) {
      std::vector<Moments> all;  // all or none, if memory runs out
      for (const Parameter<T>* p : parameters) {
        const RowMatrix<T> zero = RowMatrix<T>::Zero(p->value.rows(), p->value.cols());
        all.push_back({zero, zero});
      }
      moments_ = std::move(all);
    }
    if (parameters.size() != moments_.size()) {
      refuse("Adam", "the number of parameters", std::to_string(parameters.size()),
             std::to_string(moments_.size()) + ", as in the first step");
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p]->value.size() == moments_[p].mean.size()) continue;
      refuse("Adam", "the size of " + parameters[p]->name,
             std::to_string(parameters[p]->value.size()),
             std::to_string(moments_[p].mean.size()) + ", as in the first step");
    }
  }

  static double sum_of_squares(const std::vector<Parameter<T>*>& parameters) {
    const LayerKernels<T> kernels;
    double sum = 0;
    for (const Parameter<T>* p : parameters) {
      sum += kernels.sum_of_squares(p->gradient.data(), p->gradient.size());
    }
    return sum;
  }

  void move(Parameter<T>& parameter, Moments& moments, const Step& now, Index first,
            Index count) const {
    LayerKernels<T>().adam({.weights = parameter.value.data() + first,
                            .gradient = parameter.gradient.data() + first,
                            .mean = moments.mean.data() + first,
                            .square = moments.square.data() + first,
                            .count = count,
                            .share = static_cast<T>(now.share),
                            .beta1 = static_cast<T>(options.beta1),
                            .beta2 = static_cast<T>(options.beta2),
                            .rest1 = static_cast<T>(1 - options.beta1),
                            .rest2 = static_cast<T>(1 - options.beta2),
                            .rate = static_cast<T>(options.learning_rate * now.unbias1),
                            .unbias2 = static_cast<T>(now.unbias2),
                            .epsilon = static_cast<T>(options.epsilon),
                            .kept = static_cast<T>(1 - now.decay)});
  }

  Index steps_ = 0;
  std::vector<Moments> moments_;
};

FOVEA_NAMESPACE_END
