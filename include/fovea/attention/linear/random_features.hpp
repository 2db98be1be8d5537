// SPDX-License-Identifier: MIT
/// \file
/// Positive random features of a call's rows (Choromanski et al. 2020, FAVOR+; MATHS.md, section
/// 7).
#pragma once

#include <algorithm>
#include <cmath>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/kernels/linear/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// Checks a projection: [1, 1, R, D] with R > 0. Its values are not checked: a NaN reaches all
/// rows.
/// \param width D
/// \param features R; negative: any
/// \param wanted whether it is read
/// \throws std::invalid_argument
template <class T>
void check_projection(const char* op, const View<const T>& projection, Index width, Index features,
                      bool wanted) {
  if (projection.empty()) {
    if (!wanted) return;
    refuse_missing(op, "projection",
                   "[1, 1, R, " + std::to_string(width) + "], the random features");
  }
  const Shape& shape = projection.shape();
  detail::check_extent(op, "projection", shape, 0, 1, "since all sequences share it");
  detail::check_extent(op, "projection", shape, 1, 1, "since all heads share it");
  if (shape[2] < 1) refuse_extent(op, "projection", shape, 2, "at least 1 random feature");
  constexpr Index most = (std::numeric_limits<Index>::max)() / (Index{1} << 16);
  if (shape[2] > most) {
    refuse_extent(op, "projection", shape, 2, "at most " + std::to_string(most));
  }
  if (features >= 0) {
    detail::check_extent(op, "projection", shape, 2, features, "the features of the decoder");
  }
  detail::check_extent(op, "projection", shape, 3, width, "the width of q");
}

/// A projection as kernels read it, and the logits computed from it.
template <class T>
class RandomFeatures {
 public:
  /// Empty.
  RandomFeatures() = default;

  /// Elements of the memory of a projection.
  /// \param wants_rows whether gradients will be propagated to rows
  static Index elements(Index features, Index width, bool wants_rows) {
    const Index rows = wants_rows ? features * padded_row<T>(width) : 0;
    return turned_elements<T>(features, width) + rows;
  }

  /// Elements of scratch for `logits`.
  static Index scratch_elements(Index width) { return kFeatureRows * padded_row<T>(width); }

  /// Prepares a projection.
  /// \param projection [1, 1, R, D], checked
  /// \param memory elements(...) elements, aligned to 64 bytes; they must outlive this object
  void pack(const View<const T>& projection, bool wants_rows, T* memory) {
    features_ = projection.rows();
    width_ = projection.width();
    const double root = width_ == 0 ? 1 : std::sqrt(static_cast<double>(width_));
    norm_factor_ = static_cast<T>(0.5 / root);
    factor_ = static_cast<T>(1 / std::sqrt(root));
    turned_ = memory;
    rows_ = wants_rows ? memory + turned_elements<T>(features_, width_) : nullptr;
    ProjectionArgs<T> args;
    args.projection = detail::head_matrix(projection, 0, 0, 0);
    args.features = features_;
    args.width = width_;
    args.factor = factor_;
    args.turned = memory;
    args.rows = wants_rows ? memory + turned_elements<T>(features_, width_) : nullptr;
    RandomFeatureKernels<T>{}.pack(args);
  }

  /// R.
  Index features() const { return features_; }
  /// The elements of a row of features.
  Index row() const { return padded_row<T>(features_); }
  /// D^(-1/4).
  T factor() const { return factor_; }
  /// factor W [R, D padded].
  /// \pre `pack` was called with wants_rows
  const T* rows() const { return rows_; }
  /// The factor of |x|^2 in the logits of keys, D^(-1/2) / 2.
  T norm_factor() const { return norm_factor_; }

  /// Computes the logits of up to kFeatureRows rows.
  /// \param next following rows that will be computed next
  /// \param is_key whether |xh|^2 / 2 is subtracted, which cancels for queries
  /// \param logits [count, row()], written
  /// \param scratch scratch_elements(...) elements
  void logits(const Matrix<const T>& x, Index count, Index next, bool is_key, T* logits,
              T* scratch) const {
    FeatureLogitsArgs<T> args;
    args.x = x;
    args.count = count;
    args.next = (std::min)(next, kFeatureRows);
    args.width = width_;
    args.features = features_;
    args.turned = turned_;
    args.norm_factor = is_key ? norm_factor_ : T{0};
    args.logits = logits;
    args.scratch = scratch;
    RandomFeatureKernels<T>{}.logits(args);
  }

  /// Computes the features of queries.
  /// \param reference [row()] the reference of the keys that they see
  /// \param rows [count, row()], written
  void queries(const Matrix<const T>& q, Index count, Index next, T* reference, T* rows,
               T* scratch) const {
    logits(q, count, next, false, rows, scratch);
    RandomFeatureKernels<T>{}.queries({rows, count, features_, reference});
  }

 private:
  Index features_ = 0;
  Index width_ = 0;
  T factor_ = 1;
  T norm_factor_ = 0;
  const T* turned_ = nullptr;
  const T* rows_ = nullptr;
};

/// The map for precomputed features, as kernels of sums take it.
template <class T>
LinearMaps<T> made_features() {
  static constexpr FeatureMapArgs<T> identity{FeatureMapKind::identity};
  return {&identity, 1};
}

FOVEA_NAMESPACE_END
