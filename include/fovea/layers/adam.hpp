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

/// Options of Adam, which may change between steps.
struct AdamOptions {
  double learning_rate = 1e-3;  ///< the step size, 0 or more
  double beta1 = 0.9;           ///< decay of the mean of the gradients, in [0, 1)
  double beta2 = 0.999;         ///< decay of the mean of their squares, in [0, 1)
  double epsilon = 1e-8;        ///< added to the root of the mean square, more than 0
  /// Each step subtracts learning_rate * weight_decay times each weight from it, except for
  /// parameters of one row (biases, and scale and shift of normalisations). 0 or more.
  double weight_decay = 0;
  /// If set, gradients with a larger norm over all parameters are scaled to this norm. More than 0.
  std::optional<double> clip_norm = {};
};

/// Updates all parameters of a layer (any type with `visit`). Step t computes for each weight w
/// with gradient g
///
///     m = b1 m + (1 - b1) g
///     v = b2 v + (1 - b2) g^2
///     m' = m / (1 - b1^t),  v' = v / (1 - b2^t)
///     w = w - rate m' / (sqrt(v') + epsilon)
///
/// It stores m and v: two numbers per weight.
template <class T>
class Adam {
 public:
  AdamOptions options;  ///< The options, which may change between steps.

  /// An optimiser before its first step.
  explicit Adam(const AdamOptions& chosen = {}) : options(chosen) {}

  /// The number of steps taken.
  Index steps() const { return steps_; }

  /// Sets the number of steps taken, to resume from a state restored through `visit_state`.
  /// \throws std::invalid_argument if it is negative
  void set_steps(Index steps) {
    if (steps < 0) refuse("Adam", "the number of steps", std::to_string(steps), "at least 0");
    steps_ = steps;
  }

  /// Calls `f(name, mean, square)` for each parameter, with m and v, which are 0 before the first
  /// step and may be changed. Together with `steps`, they are the whole state.
  /// \throws std::invalid_argument if parameter sizes differ from those of the first step
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

  /// Takes one step. Gradients are not modified.
  /// \param layer the same one in each call
  /// \return the norm of the gradient over all parameters, before clipping
  /// \throws std::invalid_argument if options are out of range, or if parameter sizes differ from
  /// those of the first step; std::bad_alloc in the first step, which then has no effect
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
  /// Cost of one weight, in multiply-adds.
  static constexpr double kProducts = 32;

  struct Moments {
    RowMatrix<T> mean;
    RowMatrix<T> square;
  };

  struct Step {
    double share;      ///< the factor by which clipping scales the gradient
    double unbias1;    ///< 1 / (1 - beta1^t)
    double unbias2;    ///< 1 / (1 - beta2^t)
    double decay = 0;  ///< the fraction subtracted by weight decay
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
