// SPDX-License-Identifier: MIT
/// \file
/// A layer's inputs for Linformer and Nystroem attention: learned projections, and buffers for
/// saved state.
#pragma once

#include <optional>

#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/layers/learned_inputs.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// LinformerAttention learns its projections E and F [P, length], which all heads share (headwise
/// sharing in the paper's section 4). A shorter sequence uses their first columns. Projected keys
/// and values are saved for backward.
template <class T>
class LearnedInputs<LinformerAttention, T> : public NoLearnedInputs<T> {
 public:
  Parameter<T> key_projection;    ///< [P, length] E
  Parameter<T> value_projection;  ///< [P, length] F

  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> keys;      ///< [B, Hk, P, D] projected keys
    Buffer<T> values;    ///< [B, Hk, P, D] projected values
    Buffer<T> d_keys;    ///< [1, 1, P, L] the gradient of E
    Buffer<T> d_values;  ///< [1, 1, P, L] the gradient of F
    /// If the sequence is sharded, the columns of E for local tokens.
    std::optional<Buffer<T>> own_of_keys;
    std::optional<Buffer<T>> own_of_values;  ///< likewise, for F
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Draws E and F. \throws std::invalid_argument if `length` or `projected` is not set
  LearnedInputs(const LinformerAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : sizes_(sizes) {
    check_size(LinformerAttention::name(), "length", sizes.length);
    check_size(LinformerAttention::name(), "projected", sizes.projected);
    key_projection = Parameter<T>("key_projection", sizes.projected, sizes.length);
    value_projection = Parameter<T>("value_projection", sizes.projected, sizes.length);
    initialiser.draw(key_projection, Initialisation::glorot, sizes.length, sizes.projected);
    initialiser.draw(value_projection, Initialisation::glorot, sizes.length, sizes.projected);
  }

  /// Lists E and F.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.key_projection);
    f(self.value_projection);
  }

  /// Allocates the projected keys and values, and finds the columns of E and F.
  /// \throws std::invalid_argument if a sequence is longer than the projections
  template <class E>
  void compute(const LinformerAttention& /*op*/, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const Index rows = detail::rows_of_sequence(source.x, executor);
    if (rows > sizes_.length) {
      refuse(
          LinformerAttention::name(), "x has " + std::to_string(rows) + " rows",
          "expected at most " + std::to_string(sizes_.length) + ", the length of the projections");
    }
    const Shape shape = {source.x.batch(), sizes_.key_heads, sizes_.projected, sizes_.head_width};
    saved.keys.resize(shape);
    saved.values.resize(shape);
    if constexpr (ShardsRows<E>) {
      gather(key_projection, source.x.rows(), saved.own_of_keys, executor);
      gather(value_projection, source.x.rows(), saved.own_of_values, executor);
    } else {
      saved.own_of_keys.reset();
      saved.own_of_values.reset();
    }
  }

  /// Passes the projections to the operator, and buffers for what it saves.
  void attach(const Tokens<T>& source, Saved& saved, LinformerInputs<T>& inputs,
              LinformerSaved<T>& kept) const {
    inputs.key_projection = columns(key_projection, source.x.rows(), saved.own_of_keys);
    inputs.value_projection = columns(value_projection, source.x.rows(), saved.own_of_values);
    kept.projected_keys = saved.keys.view();
    kept.projected_values = saved.values.view();
  }

  /// Requests from the operator the gradients of the projections.
  void request_grads(const Tokens<T>& source, Saved& saved, LinformerGrads<T>& grads) const {
    const Shape shape = {1, 1, sizes_.projected, source.x.rows()};
    grads.key_projection = saved.d_keys.resize(shape);
    grads.value_projection = saved.d_values.resize(shape);
  }

  /// Adds to the gradients of E and F.
  template <class E>
  void finish(const Tokens<T>& /*source*/, Saved& saved, const View<T>& /*d_source*/,
              E&& executor) {
    add_columns(saved.d_keys.view(), key_projection, executor);
    add_columns(saved.d_values.view(), value_projection, executor);
  }

 private:
  static View<const T> columns(const Parameter<T>& parameter, Index count,
                               const std::optional<Buffer<T>>& own) {
    if (own) return own->view();
    const RowMatrix<T>& value = parameter.value;
    return {value.data(), {1, 1, value.rows(), count}, {0, 0, value.cols(), 1}};
  }

  /// Copies the columns for local tokens.
  template <class E>
  static void gather(const Parameter<T>& parameter, Index count, std::optional<Buffer<T>>& own,
                     const E& executor) {
    if (!own) own.emplace();
    const View<T> to = own->resize({1, 1, parameter.value.rows(), count});
    for (Index p = 0; p < to.rows(); ++p) {
      for (Index n = 0; n < count; ++n) {
        to(0, 0, p, n) = parameter.value(p, detail::row_of_sequence(executor, n));
      }
    }
  }

  /// Adds the gradients of the columns for local tokens, and for those of other ranks.
  /// \param d [1, 1, P, tokens]
  template <class E>
  static void add_columns(const View<const T>& d, Parameter<T>& parameter, E&& executor) {
    constexpr Index least_rows = 16;  // enough for a message
    const View<const T> by_tokens(d.data(), {1, 1, d.width(), d.rows()}, {0, 0, 1, d.width()});
    RowMatrix<T>& sum = parameter.gradient_sum();
    detail::sum_over_tokens(by_tokens, sum, least_rows, executor,
                            [&](const detail::SumRows<T>& to, const detail::TokenRange& tokens) {
                              const Index first =
                                  detail::row_of_sequence(executor, tokens.rows.begin);
                              const Index count = tokens.rows.end - tokens.rows.begin;
                              for (Index p = to.rows.begin; p < to.rows.end; ++p) {
                                T* const row = to.data + (p - to.rows.begin) * sum.cols() + first;
                                for (Index n = 0; n < count; ++n)
                                  row[n] += d(0, 0, p, tokens.rows.begin + n);
                              }
                            });
  }

  HeadSizes sizes_;
};

/// NystroemAttention learns nothing here. Its landmarks' outputs are saved for backward.
template <class T>
class LearnedInputs<NystroemAttention, T> : public NoLearnedInputs<T> {
 public:
  /// State saved for backward.
  struct Saved {
    Buffer<T> lse;     ///< [B, H, m, 1] of the landmarks
    Buffer<T> values;  ///< [B, H, m, D] their outputs
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Stores the sizes.
  LearnedInputs(const NystroemAttention& /*op*/, const HeadSizes& sizes,
                Initialiser& /*initialiser*/)
      : sizes_(sizes) {}

  /// Allocates the landmarks' outputs.
  template <class E>
  void compute(const NystroemAttention& op, const Tokens<T>& source, Saved& saved,
               E&& /*executor*/) const {
    const Index landmarks = (std::max<Index>)(0, op.options.landmarks);
    saved.lse.resize({source.x.batch(), sizes_.heads, landmarks, 1});
    saved.values.resize({source.x.batch(), sizes_.heads, landmarks, sizes_.head_width});
  }

  /// Passes these buffers to the operator.
  void attach(const Tokens<T>& /*source*/, Saved& saved, NystroemInputs<T>& /*inputs*/,
              NystroemSaved<T>& kept) const {
    kept.landmark_lse = saved.lse.view();
    kept.landmark_values = saved.values.view();
  }

 private:
  HeadSizes sizes_;
};

FOVEA_NAMESPACE_END
