// SPDX-License-Identifier: MIT
/// \file
/// The key side of the backward pass of linear attention: the features and gradients of up to
/// kLinearChunk tokens.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/grad_products.inl.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/linear/running_state.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// The tokens [first, first + count) of one key head and one map.
template <class T>
class GradTokenTile {
 public:
  GradTokenTile(const GradWidths<T>& widths, const LinearMaps<T>& maps, GradScratch<T>& scratch)
      : widths_(widths),
        maps_(maps),
        features_(scratch.take(kLinearChunk * widths.d)),
        values_t_(scratch.take(kLinearChunk * widths.dv)) {}

  bool wants_d_k() const { return tokens_->d_k.data != nullptr; }
  bool wants_d_v() const { return tokens_->d_v.data != nullptr; }

  /// Prefetches the tokens for read_tokens().
  static void prefetch(const LinearGradTokens<T>& tokens, Index first, const GradWidths<T>& widths,
                       GradPrefetcher<T>& ahead) {
    if (first < 0) return;
    const Index count = clamped(tokens.count - first, 0, kLinearChunk);
    ahead.read(tokens.k, first, count, widths.width);
    ahead.read(tokens.v, first, count, widths.value_width);
    ahead.write(tokens.d_k, first, count, widths.width);
    ahead.write(tokens.d_v, first, count, widths.value_width);
  }

  Index count() const { return count_; }
  const T* features() const { return features_; }  // [count, d], phi(k_j)
  const T* values_t() const { return values_t_; }  // [Dv, kLinearChunk], v_j, 0 beyond count

  void read_tokens(const LinearGradTokens<T>& tokens, Index first, Index count, Index map) {
    tokens_ = &tokens;
    first_ = first;
    count_ = count;
    map_ = map;
    feature_rows(maps_, map, stored(key_rows()), count, widths_.width, features_, widths_.d);
    const Matrix<const T>& v = tokens.v;
    rows_to_lanes(v.data + first * v.row, v.row, v.column, count, widths_.value_width, T(1),
                  values_t_, kLinearChunk);
  }

  /// Writes d_k_j = d_features_j o phi'(k_j), or adds it to d_k_j.
  /// \param d_features [count, d]
  /// \param slopes [count, d] scratch
  void write_d_k(const T* d_features, T* slopes, bool add) const {
    const Matrix<T> d_k = tokens_->d_k;
    const Index row = widths_.d;
    slopes_of_features(maps_, map_, key_rows(), features_, count_, widths_.width, slopes, row);
    for (Index j = 0; j < count_; ++j) {
      write_feature_row(maps_, d_k.data + (first_ + j) * d_k.row, d_k.column, widths_.width, add,
                        KeyRow{d_features + j * row, slopes + j * row});
    }
  }

  /// Writes d_v_j = d_values_j, or adds it to d_v_j.
  /// \param d_values [count, dv]
  void write_d_v(const T* d_values, bool add) const {
    const Matrix<T> d_v = tokens_->d_v;
    for (Index j = 0; j < count_; ++j) {
      write_row(d_v.data + (first_ + j) * d_v.row, d_v.column, widths_.value_width, add,
                ValueRow{d_values + j * widths_.dv});
    }
  }

 private:
  struct KeyRow {
    const T* d_features;
    const T* slopes;
    FOVEA_INLINE Vec<T> operator()(Index c, Vec<T> before) const {
      return fma(load(d_features + c), load(slopes + c), before);
    }
  };
  struct ValueRow {
    const T* d_values;
    FOVEA_INLINE Vec<T> operator()(Index c, Vec<T> before) const {
      return before + load(d_values + c);
    }
  };

  Matrix<const T> key_rows() const {
    const Matrix<const T>& k = tokens_->k;
    return {k.data + first_ * k.row, k.row, k.column};
  }

  const GradWidths<T>& widths_;
  const LinearMaps<T>& maps_;
  const LinearGradTokens<T>* tokens_ = nullptr;
  Index first_ = 0;
  Index count_ = 0;
  Index map_ = 0;
  T* const features_;
  T* const values_t_;
};

/// The gradients of the features and values of a tile of tokens.
template <class T>
class TokenGradients {
 public:
  TokenGradients(const GradWidths<T>& widths, GradScratch<T>& scratch)
      : widths_(widths),
        d_features_(scratch.take(kLinearChunk * widths.d)),
        d_values_(scratch.take(kLinearChunk * widths.dv)),
        lanes_(scratch.take(kLinearChunk * widths.d)) {
    clear_elements(d_features_, kLinearChunk * widths.d);
    clear_elements(lanes_, kLinearChunk * widths.d);
  }

  /// Adds r to the gradients of the features.
  void add(const T* normaliser, Index count) {
    const Index row = widths_.d;
    for (Index c = 0; c < row; c += kLanes<T>) {
      const Vec<T> r = load(normaliser + c);
      T* const to = d_features_ + c;
      for (Index j = 0; j < count; ++j) store(to + j * row, load(to + j * row) + r);
    }
  }

  T* d_features() const { return d_features_; }  // [count, d]
  T* d_values() const { return d_values_; }      // [count, dv]
  T* scratch() const { return lanes_; }          // [kLinearChunk, d], free between two reads

  /// Computes the contributions to all tokens of rows that see all of them: R v_j, still without r,
  /// and R^T phi(k_j).
  /// \param state R [D, dv]
  void read(const GradTokenTile<T>& tile, const T* state, GradPrefetcher<T>& ahead) {
    if (tile.wants_d_k()) read_features(tile, state, ahead);
    if (!tile.wants_d_v()) return;
    multiply_rows<ProductSteps::all, T>({tile.features(), widths_.d, 1, state, widths_.dv,
                                         d_values_, widths_.dv, widths_.width, &ahead},
                                        tile.count(), widths_.dv);
  }

 private:
  /// Computes the features' part with tokens in the lanes, so that no matrix needs transposing.
  void read_features(const GradTokenTile<T>& tile, const T* state, GradPrefetcher<T>& ahead) {
    multiply_rows<ProductSteps::all, T>({state, widths_.dv, 1, tile.values_t(), kLinearChunk,
                                         lanes_, kLinearChunk, widths_.value_width, &ahead},
                                        widths_.width, kLinearChunk);
    lanes_to_rows(lanes_, kLinearChunk, d_features_, widths_.d, 1, tile.count(), widths_.width);
  }

  const GradWidths<T>& widths_;
  T* const d_features_;
  T* const d_values_;
  T* const lanes_;
};
