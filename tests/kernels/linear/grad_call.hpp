// SPDX-License-Identifier: MIT
/// \file
/// Problems of the gradient kernels of linear attention, and calls of these kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/table.hpp"
#include "kernels/linear/own_map.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_linear_grad {

using fovea::DenominatorPolicy;
using fovea::FeatureMapArgs;
using fovea::FeatureMapKind;
using fovea::LinearGradRows;
using fovea::LinearGradTokens;
using fovea::Matrix;

template <class T>
FeatureMapArgs<T> map_args(FeatureMapKind kind) {
  return kind == FeatureMapKind::own ? FeatureMapArgs<T>{kind, &square<T>, &twice<T>}
                                     : FeatureMapArgs<T>{kind};
}

struct Setup {
  bool causal = true;
  Index heads = 1;
  Index rows = 70;
  Index tokens = 70;
  Index width = 20;
  Index value_width = 12;
  Index first = 0;  // position of row 0, if causal
  std::vector<FeatureMapKind> maps = {FeatureMapKind::elu_plus_one};
  DenominatorPolicy policy = DenominatorPolicy::propagate;
  double tau = 0;
  bool weighted = false;
};

template <class T>
struct Problem {
  Setup setup;
  Tensor<T> q, k, v, d_out;
  std::vector<T> far_weight;
  std::vector<FeatureMapArgs<T>> maps;

  explicit Problem(const Setup& s, std::uint64_t seed = 1)
      : setup(s),
        q({1, s.heads, s.rows, s.width}),
        k({1, 1, s.tokens, s.width}),
        v({1, 1, s.tokens, s.value_width}),
        d_out({1, s.heads, s.rows, s.value_width}) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 1));
    v.fill(gaussian(seed + 2));
    d_out.fill(gaussian(seed + 3));
    for (Index c = 0; s.weighted && c < s.value_width; ++c) {
      far_weight.push_back(static_cast<T>(0.25 + 0.5 * static_cast<double>(c % 3)));
    }
    for (const FeatureMapKind kind : s.maps) maps.push_back(map_args<T>(kind));
  }

  fovea::LinearMaps<T> linear_maps() const {
    return {maps.data(), static_cast<Index>(maps.size()), setup.policy, static_cast<T>(setup.tau)};
  }
};

/// Gradients, and sum <G_i, far_i> of each head.
template <class T>
struct Result {
  Tensor<T> q, k, v;
  std::vector<T> products;
};

struct RunOptions {
  Layout layout = {};
  bool q = true;
  bool k = true;
  bool v = true;
  bool head_by_head = false;
  std::optional<double> before = {};  // the initial values of accumulated gradients
};

template <class T>
Matrix<T> matrix_of(const Tensor<T>& x, Index h, Index first = 0) {
  const auto view = x.view();
  const Shape& strides = view.strides();
  return {view.data() + h * strides[1] + first * strides[2], strides[2], strides[3]};
}
template <class T>
Matrix<const T> input_of(const Tensor<T>& x, Index h, Index first = 0) {
  const Matrix<T> m = matrix_of(x, h, first);
  return {m.data, m.row, m.column};
}

template <class T>
class Runner {
 public:
  Runner(const Problem<T>& p, const RunOptions& options)
      : p_(p),
        options_(options),
        q_(p.q.in(options.layout)),
        k_(p.k.in(options.layout)),
        v_(p.v.in(options.layout)),
        d_out_(p.d_out.in(options.layout)),
        scratch_((scratch_elements() + kBeyond) * Index{sizeof(T)}),
        result_{Tensor<T>(p.q.shape(), options.layout), Tensor<T>(p.k.shape(), options.layout),
                Tensor<T>(p.v.shape(), options.layout),
                std::vector<T>(as_size(p.setup.heads), std::numeric_limits<T>::quiet_NaN())} {
    std::fill_n(scratch_.template data<T>() + scratch_elements(), kBeyond, T(kUnused));
    if (options.before) {
      for (Tensor<T>* x : {&result_.q, &result_.k, &result_.v}) x->fill(constant(*options.before));
    }
  }

  Result<T> run() {
    if (p_.setup.causal) {
      run_causal();
    } else {
      run_total();
    }
    const T* const beyond = scratch_.template data<T>() + scratch_elements();
    for (Index i = 0; i < kBeyond; ++i) EXPECT_EQ(beyond[i], T(kUnused)) << i << " beyond scratch";
    return std::move(result_);
  }

 private:
  // Elements after the scratch memory, which must not change.
  static constexpr Index kBeyond = 1 << 14;
  static constexpr int kUnused = 12345;

  Index scratch_elements() const {
    return fovea::linear_grad_scratch<T>(p_.setup.width, p_.setup.value_width);
  }

  LinearGradRows<T> rows(Index h, Index first = 0) {
    LinearGradRows<T> r;
    r.q = input_of(q_, h, first);
    r.d_out = input_of(d_out_, h, first);
    r.far_weight = p_.far_weight.empty() ? nullptr : p_.far_weight.data();
    if (options_.q) r.d_q = matrix_of(result_.q, h, first);
    r.d_out_times_out = &result_.products[as_size(h)];
    return r;
  }
  LinearGradTokens<T> tokens(Index first, Index count) {
    LinearGradTokens<T> t;
    t.k = input_of(k_, 0, first);
    t.v = input_of(v_, 0, first);
    if (options_.k) t.d_k = matrix_of(result_.k, 0, first);
    if (options_.v) t.d_v = matrix_of(result_.v, 0, first);
    t.count = count;
    return t;
  }

  void run_causal() {
    const Setup& s = p_.setup;
    const Index saved = fovea::linear_grad_saved(s.rows, s.width, p_.linear_maps());
    std::vector<T> kept(as_size(s.heads * saved));
    std::vector<LinearGradRows<T>> heads;
    for (Index h = 0; h < s.heads; ++h) heads.push_back(rows(h));
    fovea::LinearGradCausalArgs<T> args;
    args.tokens = tokens(0, s.tokens);
    args.width = s.width;
    args.value_width = s.value_width;
    args.maps = p_.linear_maps();
    args.row_count = s.rows;
    args.first_position = s.first;
    args.accumulate = options_.before.has_value();
    args.scratch = scratch_.template data<T>();
    const Index step = options_.head_by_head ? 1 : s.heads;
    for (Index h = 0; h < s.heads; h += step) {
      args.rows = heads.data() + h;
      args.heads = step;
      args.saved = kept.data() + h * saved;
      fovea::LinearGradKernels<T>{}.causal_rows(args);
    }
    args.rows = heads.data();
    args.heads = s.heads;
    args.saved = kept.data();
    fovea::LinearGradKernels<T>{}.causal_keys(args);
  }

  void run_total() {
    const Setup& s = p_.setup;
    const fovea::LinearShape shape{static_cast<Index>(s.maps.size()), s.width, s.value_width};
    const Index elements = fovea::linear_sum_elements<T>(shape);
    const auto all = segments(s.tokens) + s.heads * segments(s.rows);
    fovea::Workspace memory(all * elements * Index{sizeof(T)});
    T* const sums = memory.data<T>();
    sum_tokens(shape, sums);
    T* const row_sums = sums + segments(s.tokens) * elements;
    fovea::LinearKernels<T>{}.fold({sums, segments(s.tokens), elements, sums});
    for (Index h = 0; h < s.heads; ++h) {
      double product = 0;
      for (Index n = 0; n < segments(s.rows); ++n) {
        const Index first = n * fovea::kLinearSegment;
        fovea::LinearGradRowsArgs<T> args;
        args.rows = rows(h, first);
        args.row_count = std::min(fovea::kLinearSegment, s.rows - first);
        args.width = s.width;
        args.value_width = s.value_width;
        args.maps = p_.linear_maps();
        args.accumulate = options_.before.has_value();
        args.total = sums;
        args.sums = row_sums + (h * segments(s.rows) + n) * elements;
        args.scratch = scratch_.template data<T>();
        fovea::LinearGradKernels<T>{}.rows(args);
        product += static_cast<double>(result_.products[as_size(h)]);
      }
      result_.products[as_size(h)] = static_cast<T>(product);
    }
    fovea::LinearKernels<T>{}.fold({row_sums, s.heads * segments(s.rows), elements, row_sums});
    for (Index first = 0; first < s.tokens; first += 33) {  // any division
      fovea::LinearGradKeysArgs<T> args;
      args.tokens = tokens(first, std::min<Index>(33, s.tokens - first));
      args.width = s.width;
      args.value_width = s.value_width;
      args.maps = p_.linear_maps();
      args.accumulate = options_.before.has_value();
      args.total = row_sums;
      args.scratch = scratch_.template data<T>();
      fovea::LinearGradKernels<T>{}.keys(args);
    }
  }

  static Index segments(Index n) { return (n + fovea::kLinearSegment - 1) / fovea::kLinearSegment; }

  void sum_tokens(const fovea::LinearShape& shape, T* sums) {
    fovea::Workspace scratch(fovea::linear_sum_scratch<T>(shape) * Index{sizeof(T)});
    for (Index n = 0; n < segments(p_.setup.tokens); ++n) {
      const Index first = n * fovea::kLinearSegment;
      fovea::LinearSumArgs<T> args;
      args.k = fovea::stored(input_of(k_, 0, first));
      args.v = fovea::stored(input_of(v_, 0, first));
      args.width = shape.width;
      args.value_width = shape.value_width;
      args.maps = p_.linear_maps();
      args.tokens = std::min(fovea::kLinearSegment, p_.setup.tokens - first);
      args.sums = sums + n * fovea::linear_sum_elements<T>(shape);
      args.scratch = scratch.data<T>();
      fovea::LinearKernels<T>{}.sum(args);
    }
  }

  const Problem<T>& p_;
  RunOptions options_;
  Tensor<T> q_, k_, v_, d_out_;
  fovea::Workspace scratch_;
  Result<T> result_;
};

template <class T>
Result<T> run(const Problem<T>& p, const RunOptions& options = {}) {
  return Runner<T>(p, options).run();
}

}  // namespace fovea_test::kernels_linear_grad
